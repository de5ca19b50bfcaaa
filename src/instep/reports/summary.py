"""The last lines of a run: how much was found, in how much, and what can be done about it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from instep.reports.colours import Paint
from instep.rules import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.rules import Finding


def render(
    findings: Iterable[Finding],
    *,
    files: int,
    unjudged: int = 0,
    fixed: int = 0,
    colour: bool = False,
) -> str:
    """Return the summary of a run over so many files, in which so many loops were not judged.

    `fixed` counts findings that are mended already and not among `findings`.

    >>> print(render([], files=3, unjudged=1), end="")
    No problems found in 3 files.
    1 loop was not judged; --verbose says why.
    """
    found = list(findings)
    paint = Paint(is_on=colour)
    lines = [f"Fixed {_count(fixed, 'problem')}."] if fixed else []
    lines.append(_found(found, files, paint))
    if fixable := _fixable(found):
        lines.append(paint("fix", fixable))
    if unjudged:
        was = "was" if unjudged == 1 else "were"
        lines.append(f"{_count(unjudged, 'loop')} {was} not judged; --verbose says why.")
    return "".join(f"{line}\n" for line in lines)


def _found(found: list[Finding], files: int, paint: Paint) -> str:
    where = f"in {_count(files, 'file')}"
    if not found:
        return f"No problems found {where}." if files else "No files to check."
    counts = Counter(finding.severity for finding in found)
    said = [
        paint(severity.word, _count(counts[severity], _NOUNS[severity]))
        for severity in sorted(counts, reverse=True)
    ]
    *others, last = said
    listed = f"{', '.join(others)} and {last}" if others else last
    touched = len({finding.place.path for finding in found})
    if touched < files:
        where = f"in {touched:,} of {_count(files, 'file')}"
    return f"Found {listed} {where}."


_NOUNS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def _fixable(found: list[Finding]) -> str:
    safe = sum(finding.fix is not None and finding.fix.is_safe for finding in found)
    unsafe = sum(finding.fix is not None and not finding.fix.is_safe for finding in found)
    if not unsafe:
        return f"{safe:,} fixable with --fix." if safe else ""
    more = f"{unsafe:,} more with" if safe else f"{unsafe:,} fixable with --fix"
    start = f"{safe:,} fixable with --fix, " if safe else ""
    return f"{start}{more} --unsafe-fixes."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
