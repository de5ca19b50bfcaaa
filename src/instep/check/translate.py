"""From positions of a unit's text to those of the user's file, for edits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from instep.check.magics import revive
from instep.rules.finding import Edit, Fix
from instep.trace.plain import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.check.units import Spot, Unit
    from instep.rules.finding import Finding
    from instep.trace import Place


def in_file(unit: Unit, finding: Finding) -> Finding:
    """Return the finding with the edits of its fix in positions of the file.

    Where they cannot be told, because they reach into another notebook cell, the fix keeps its
    title and has no edits: `--fix` knows how to make them, other programs do not. The evidence,
    which only fixes are made from, is dropped: it would be most of what processes tell each other.
    """
    finding = as_shown(finding, unit.path)
    if finding.fix is None or not unit.locator.spots:
        return finding
    edits = [_edit(unit, edit, finding.place.cell) for edit in finding.fix.edits]
    known = tuple(edit for edit in edits if edit is not None)
    fix = Fix(finding.fix.title, known if len(known) == len(edits) else (), finding.fix.is_safe)
    return replace(finding, fix=fix)


def as_shown(finding: Finding, path: str) -> Finding:
    """Return what was found in a file named `path`, other files named the same way, and without
    its evidence. Those that it imports have come in as relative to the current folder.
    """
    if not os.path.isabs(path):  # noqa: PTH117
        return replace(finding, evidence=())
    related = tuple(replace(each, place=_absolute(each.place)) for each in finding.related)
    return replace(finding, place=_absolute(finding.place), related=related, evidence=())


def _absolute(place: Place) -> Place:
    if os.path.isabs(place.path):  # noqa: PTH117
        return place
    return replace(place, path=os.path.abspath(place.path))  # noqa: PTH100  # no links followed


def _edit(unit: Unit, edit: Edit, cell: int | None) -> Edit | None:
    spots = unit.locator.spots
    if not 1 <= edit.line <= edit.end_line <= len(spots) + 1:
        return None
    start, end = _spot(spots, edit.line), _spot(spots, edit.end_line)
    text = revive(edit.text)
    if start.cell != cell or end.cell != cell or "\x1f" in text:
        return None
    if prefix := _prefix(unit, min(edit.line, len(spots))):
        # Every line of a block that stands in a list or a quotation begins like its neighbours.
        text = text.replace("\n", f"\n{prefix}")
        if edit.line > len(spots):
            text = prefix + text
        if edit.end_line > len(spots):
            text = text.removesuffix(prefix)
    return Edit(start.line, edit.column + start.shift, end.line, edit.end_column + end.shift, text)


def _prefix(unit: Unit, line: int) -> str:
    spot = unit.locator.spots[line - 1]
    if not spot.shift:
        return ""
    own = unit.source_line(unit.locator.place(line))
    return own.encode("utf-8", "replace")[: spot.shift].decode("utf-8", "replace")


def _spot(spots: Sequence[Spot], line: int) -> Spot:
    if line <= len(spots):
        return spots[line - 1]
    last = spots[-1]  # the position behind the last line end
    return last._replace(line=last.line + 1, shift=0)


def applied(text: str, edits: Sequence[Edit]) -> str:
    r"""Return a text with edits made in it; of two that overlap, the later one in the text wins.

    >>> applied("é = 1\nb\n", [Edit(1, 5, 1, 6, "2"), Edit(2, 0, 2, 0, "a")])
    'é = 2\nab\n'
    """
    lines = text.encode("utf-8", "surrogatepass").split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    whole = b"\n".join(lines)
    last = len(whole) + 1
    for edit in sorted(set(edits), key=lambda each: (each.line, each.column), reverse=True):
        start = starts[edit.line - 1] + edit.column
        end = starts[edit.end_line - 1] + edit.end_column
        if end <= last:
            whole = whole[:start] + edit.text.encode("utf-8", "surrogatepass") + whole[end:]
            last = start
    return whole.decode("utf-8", "surrogatepass")
