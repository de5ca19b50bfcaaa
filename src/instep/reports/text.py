"""Findings as people read them: a line that editors can jump to, then the source behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.reports.colours import Paint
from instep.reports.escape import visible
from instep.reports.excerpt import Mark, mark, rows
from instep.reports.options import DEFAULT
from instep.reports.positions import condition_of, in_order, span_of
from instep.reports.prose import in_short
from instep.trace import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.reports.options import Options
    from instep.reports.positions import Source
    from instep.rules import Finding, Related


def render(findings: Iterable[Finding], source: Source, options: Options = DEFAULT) -> str:
    """Return the findings with their excerpts, an empty line between two."""
    paint = Paint(is_on=options.colour)
    blocks = (_block(finding, source, options, paint) for finding in in_order(findings))
    return "\n".join("".join(f"{row}\n" for row in block) for block in blocks)


def where(place: Place, source: Source) -> str:
    """Return a place as people and editors write it, columns in characters.

    >>> from instep.trace import Place
    >>> where(Place("train.py", 12, column=4), lambda path, cell: None)
    'train.py:12:5'
    >>> where(Place("train.ipynb", 5, column=4, cell=3), lambda path, cell: None)
    'train.ipynb:cell 3:line 5'
    """
    path = visible(place.path)
    if place.cell is not None:
        return f"{path}:cell {place.cell}:line {place.line}"
    column = span_of(place, source).column
    return f"{path}:{place.line}" if column is None else f"{path}:{place.line}:{column}"


def header(finding: Finding, source: Source, paint: Paint) -> str:
    """Return the line that stands for a finding, as editors read it."""
    severity = paint(finding.severity.word, finding.severity.word)
    rule = paint("strong", visible(f"{finding.code} {finding.name}"))
    place = paint("strong", where(finding.place, source))
    return f"{place}: {severity} {rule}: {visible(finding.message)}"


def _block(finding: Finding, source: Source, options: Options, paint: Paint) -> list[str]:
    marks, unmarked = _marks(finding, source)
    last = max((each.line for group in marks.values() for each in group), default=1)
    gutter = len(str(last))
    found = [header(finding, source, paint)]
    home = (finding.place.path, finding.place.cell)
    for (path, cell), group in marks.items():
        if (path, cell) != home:
            at = where(Place(path, group[0].line, cell=cell), source)
            found.append(paint("gutter", f"{' ' * gutter}--> ") + at)
        lines = source(path, cell) or ()
        found += rows(group, lines, gutter=gutter, width=options.width, paint=paint)
    indent = " " * gutter + paint("gutter", " = ")
    for related in unmarked:
        found.append(f"{indent}{visible(related.label)}: {where(related.place, source)}")
    if (condition := condition_of(finding)) is not None:
        found.append(indent + visible(condition))
    if finding.fix is not None:
        option = "--fix" if finding.fix.is_safe else "--fix --unsafe-fixes"
        title = f"{visible(finding.fix.title)} [{option}]"
        found.append(f"{indent}{paint('fix', 'fix:')} {title}")
    else:
        if (advice := finding.advice or in_short(finding.code)) is not None:
            found.append(f"{indent}{paint('fix', 'to do:')} {visible(advice)}")
        found.append(f"{indent}more: instep explain {visible(finding.name)}")
    return found


def _marks(
    finding: Finding, source: Source
) -> tuple[dict[tuple[str, int | None], list[Mark]], list[Related]]:
    """Return the marks by file and cell, the finding's own first, and what has no text."""
    found: dict[tuple[str, int | None], list[Mark]] = {}
    main = mark(finding.place, source, "", finding.severity.word, is_main=True)
    if main is not None:
        found[finding.place.path, finding.place.cell] = [main]
    unmarked = []
    for related in finding.related:
        place = related.place
        made = mark(place, source, related.label, "related", is_main=False)
        if made is None:
            unmarked.append(related)
        else:
            found.setdefault((place.path, place.cell), []).append(made)
    return found, unmarked
