"""Source lines with marks under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.reports.cells import show
from instep.reports.escape import visible
from instep.reports.positions import before, line_at
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.reports.colours import Paint
    from instep.reports.positions import Source
    from instep.trace import Place


@dataclass(frozen=True, slots=True)
class Mark:
    """What is underlined in one line, from one character to another, and what is said of it."""

    line: int
    text: str
    """The whole line."""
    start: int
    end: int
    label: str
    style: str
    is_main: bool


def mark(place: Place, source: Source, label: str, style: str, *, is_main: bool) -> Mark | None:
    """Return the mark for a place, or None if there is no text to put it under."""
    text = line_at(source, place.path, place.cell, place.line)
    if text is None:
        # The event may have brought its own text; its columns start where the text starts.
        text = (place.snippet or "").partition("\n")[0].strip()
        if not text:
            return None
        start, end = 0, len(text)
    else:
        start, end = _extent(place, text)
    return Mark(place.line, text, start, end, label, style, is_main)


def _extent(place: Place, text: str) -> tuple[int, int]:
    whole = len(text.rstrip())
    if place.column is None:
        return min(len(text) - len(text.lstrip()), whole), whole
    start = len(before(text, place.column))
    if place.end_line is not None and place.end_line > place.line:
        return start, whole
    if place.end_column is None:
        return start, start + 1
    return start, len(before(text, place.end_column))


def rows(
    marks: Sequence[Mark], lines: Sequence[str], *, gutter: int, width: int, paint: Paint
) -> list[str]:
    """Return the rows of one excerpt: each marked line once, with a row below for every mark."""
    by_line: dict[int, list[Mark]] = {}
    for each in marks:
        by_line.setdefault(each.line, []).append(each)
    found = [_row("", "", gutter, paint)]
    room = width - gutter - len(" | ")
    previous: int | None = None
    for line in sorted(by_line):
        here = sorted(_merged(by_line[line]), key=lambda each: (not each.is_main, each.start))
        if previous is not None:
            found += _between(previous, line, lines, gutter=gutter, room=room, paint=paint)
        shown = show(here[0].text, focus=here[0].start, width=room)
        found.append(_row(str(line), shown.text, gutter, paint))
        for each in here:
            start, end = shown.column(each.start), shown.column(each.end)
            line_below = ("^" if each.is_main else "-") * max(end - start, 1)
            said = f"{line_below} {visible(each.label)}" if each.label else line_below
            found.append(_row("", " " * start + paint(each.style, said), gutter, paint))
        previous = line
    return found


def _between(
    previous: int, line: int, lines: Sequence[str], *, gutter: int, room: int, paint: Paint
) -> list[str]:
    """Return the row between two marked lines: the only line there, or dots for several."""
    if line == previous + 2 and previous < len(lines):
        text = show(lines[previous].rstrip("\r\n"), focus=0, width=room).text
        return [_row(str(previous + 1), text, gutter, paint)]
    return [paint("gutter", "...")] if line > previous + 1 else []


def _merged(marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks with those of one and the same span said in one row."""
    spans: dict[tuple[int, int], Mark] = {}
    for each in sorted(marks, key=lambda each: not each.is_main):
        span = (each.start, each.end)
        if span not in spans:
            spans[span] = each
            continue
        kept = spans[span]
        said = dict.fromkeys(label for label in (kept.label, each.label) if label)
        spans[span] = Mark(
            kept.line, kept.text, kept.start, kept.end, ", ".join(said), kept.style, kept.is_main
        )
    return list(spans.values())


def _row(number: str, text: str, gutter: int, paint: Paint) -> str:
    edge = paint("gutter", f"{number:>{gutter}} |")
    return f"{edge} {text}" if text.strip() else edge
