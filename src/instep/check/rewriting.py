"""Texts with edits made, and units as they would be read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.problems import Diagnostic
from instep.check.sources import units_from_bytes
from instep.rules.edits import are_apart, position
from instep.rules.finding import Edit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.check.units import Unit


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits made; ValueError if two of them change the same text.

    >>> apply("loss.backward()", [Edit(1, 0, 1, 4, "(loss / n)")])
    '(loss / n).backward()'
    """
    ordered = sorted(edits, key=position)
    if not are_apart(ordered):
        msg = "two edits change the same text"
        raise ValueError(msg)
    data = text.encode("utf-8")
    starts = [0]
    for line in data.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    pieces: list[bytes] = []
    done = 0
    for edit in ordered:
        pieces += (data[done : starts[edit.line - 1] + edit.column], edit.text.encode("utf-8"))
        done = starts[edit.end_line - 1] + edit.end_column
    return b"".join([*pieces, data[done:]]).decode("utf-8")


def rewritten(unit: Unit, text: str) -> Unit | None:
    """Return a unit as it is read once its text is written back; None if it cannot be."""
    try:
        data = unit.to_bytes(unit.write_back(text))
        units = units_from_bytes(data, unit.path, kind=unit.kind)
    except (
        ValueError
    ):  # an edit from one notebook cell into another; no such letter in the encoding
        return None
    if isinstance(units, Diagnostic):
        return None
    # The blocks of a Markdown file are told apart by the line they begin on.
    here = unit.locator.spots[:1]
    return next((u for u in units if u.locator.spots[:1] == here and u.text == text), None)


def changes(old: str, new: str) -> tuple[Edit, ...]:
    r"""Return edits of whole lines that make one text of another.

    >>> changes("a\nb\nc\n", "a\nB\nc\n")
    (Edit(line=2, column=0, end_line=3, end_column=0, text='B\n'),)
    """
    from difflib import SequenceMatcher  # noqa: PLC0415  # slow to load, and rarely needed

    before, after = old.split("\n"), new.split("\n")
    edits = []
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if b < len(before):
            text = "".join(f"{line}\n" for line in after[c:d])
            edits.append(Edit(a + 1, 0, b + 1, 0, text))
        elif a:  # to the very end, so that the line end before it goes or comes, too
            lines = "".join(f"\n{line}" for line in after[c:d])
            edits.append(Edit(a, _width(before[a - 1]), b, _width(before[-1]), lines))
        else:
            edits.append(Edit(1, 0, b, _width(before[-1]), "\n".join(after[c:d])))
    return tuple(edits)


def _width(line: str) -> int:
    return len(line.encode("utf-8"))
