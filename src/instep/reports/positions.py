"""From the positions of findings to those that reports print.

Places and edits count columns from 0 in UTF-8 bytes. People and most formats count from 1, in
characters or in UTF-16 units, which takes the text of the line to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from instep.reports.escape import encodable
from instep.trace.pattern import pattern
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from instep.rules import Finding
    from instep.trace import Place

Source: TypeAlias = Callable[[str, int | None], Sequence[str] | None]
"""(path, cell) → the lines of that file or notebook cell, None where they are not at hand.

Called several times for each finding, so it should remember what it has read.
"""

Measure: TypeAlias = Callable[[str], int]
"""How long a text is, in the unit that a format counts columns in."""

_LINE_END = pattern(r"\r\n|\r|\n")


def split_lines(text: str) -> list[str]:
    r"""Cut a text where Python's parser counts a new line, and nowhere else.

    `str.splitlines` would also cut at form feeds and at separators inside string literals.

    >>> split_lines("a\r\nb\x0cc\n")
    ['a', 'b\x0cc', '']
    """
    return _LINE_END.split(text)


def utf16_units(text: str) -> int:
    """Return the length of a text in UTF-16 code units.

    >>> utf16_units("a😀")
    3
    """
    return len(text) + sum(char > "\uffff" for char in text)


def before(line: str, column: int) -> str:
    """Return the part of a line before a column in UTF-8 bytes; a cut inside a character drops it.

    >>> before("é = 1", 2)
    'é'
    """
    if line.isascii():
        return line[: max(column, 0)]
    return encodable(line).encode()[: max(column, 0)].decode(errors="ignore")


def line_at(source: Source, path: str, cell: int | None, line: int) -> str | None:
    """Return the text of a line without its end, or None."""
    lines = source(path, cell)
    if lines is None or not 1 <= line <= len(lines):
        return None
    return lines[line - 1].rstrip("\r\n")


@dataclass(frozen=True, slots=True)
class Span:
    """Where something stands, as reports say it: lines and columns from 1, the end excluded."""

    line: int
    column: int | None
    end_line: int
    end_column: int | None
    is_exact: bool = True
    """False if a line could not be read and its columns are those of the bytes."""


def span_of(place: Place, source: Source, measure: Measure = len) -> Span:
    """Return where a place is, in the units of `measure`."""
    end_line = max(place.end_line or place.line, place.line)
    end_column = place.end_column
    if end_line == place.line and end_column is not None:
        end_column = None if place.column is None else max(end_column, place.column)
    return span_between(
        source,
        place.path,
        place.cell,
        start=(place.line, place.column),
        end=(end_line, end_column),
        measure=measure,
    )


def span_between(
    source: Source,
    path: str,
    cell: int | None,
    *,
    start: tuple[int, int | None],
    end: tuple[int, int | None],
    measure: Measure = len,
) -> Span:
    """Return the span between two positions, each a line and a column in bytes."""
    found: list[int | None] = []
    is_exact = True
    for line, column in (start, end):
        # Column 0 needs no text: an insertion after the last line end has none to offer.
        text = line_at(source, path, cell, line) if column else ""
        if text is None:
            is_exact = False
        if column is None or text is None:
            found.append(None if column is None else column + 1)
        else:
            found.append(measure(before(text, column)) + 1)
    return Span(start[0], found[0], end[0], found[1], is_exact)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of the files they are in, whichever was checked first."""
    return sorted(
        findings,
        key=lambda each: (
            each.place.path,
            each.place.cell or 0,
            each.place.line,
            each.place.column or 0,
            each.code,
            each.message,
        ),
    )


def condition_of(finding: Finding) -> str | None:
    """Return "when ...", the path that shows a finding, or None if all paths do."""
    if not finding.condition:
        return None
    said = finding.condition
    return said if said.startswith("when ") else f"when {said}"
