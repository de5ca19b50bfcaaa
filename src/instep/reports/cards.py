"""Findings as HTML: what is wrong, the user's lines, and what to do about it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from instep.reports.escape import visible
from instep.reports.excerpt import mark
from instep.reports.positions import condition_of
from instep.reports.prose import html_of, inline, remedy
from instep.rules.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.reports.excerpt import Mark
    from instep.reports.record import Record
    from instep.rules import Finding
    from instep.trace import Place

_AROUND = 2
"""Lines that are shown before and after a marked one."""
_TAB = 4


def cards(record: Record) -> str:
    """Return all findings, the worst first."""
    ranked = sorted(record.findings, key=lambda f: (-f.severity, f.place.path, f.place.line))
    return "\n".join(_card(finding, record, number) for number, finding in enumerate(ranked, 1))


def _card(finding: Finding, record: Record, number: int) -> str:
    severity = finding.severity.word
    name = escape(visible(finding.name))
    condition = condition_of(finding)
    when = "" if condition is None else f'<p class="when">{escape(visible(condition))}</p>'
    todo, more = _advice(finding)
    return f"""<article class="finding {severity}" id="finding-{number}">
<header>
<span class="badge">{severity}</span>
<h3><span class="code">{escape(visible(finding.code))}</span> {name}</h3>
<span class="where">{escape(_where(finding.place, record))}</span>
</header>
<p class="message">{inline(visible(finding.message))}</p>
{when}{_excerpts(finding, record)}
{todo}<footer>{more}<span class="explain">More: <code>instep explain {name}</code>\
<button type="button" class="copy" data-copy="instep explain {name}" hidden>Copy</button></span>
</footer>
</article>"""


def _advice(finding: Finding) -> tuple[str, str]:
    """Return what to do, and the rest of the rule's page; empty for what has no rule.

    What is said of this finding alone stands in for the page's: it is what other reports say.
    """
    found = rule(finding.code)
    if found is None:
        return "", ""
    fix, why = remedy(found.__doc__ or "")
    fix = visible(finding.advice) if finding.advice is not None else fix
    todo = f'<section class="todo"><h4>What to do</h4>{html_of(fix)}</section>\n' if fix else ""
    more = f"<details><summary>Why it matters</summary>{html_of(why)}</details>\n" if why else ""
    return todo, more


def _where(place: Place, record: Record) -> str:
    cell = "" if place.cell is None else f":cell {place.cell}"
    return visible(f"{record.shown(place.path)}{cell}:{place.line}")


def _excerpts(finding: Finding, record: Record) -> str:
    """Return the user's lines, one block for each file, and what has no text as a list."""
    marks: dict[str, list[Mark]] = {}
    apart: list[str] = []
    severity = finding.severity.word
    main = mark(finding.place, record.source, "", severity, is_main=True)
    if main is not None:
        marks.setdefault(finding.place.path, []).append(main)
    for related in finding.related:
        made = mark(related.place, record.source, related.label, "related", is_main=False)
        if made is not None:
            marks.setdefault(related.place.path, []).append(made)
        else:
            where = _where(related.place, record)
            apart.append(f"<li>{escape(visible(related.label))}: <code>{escape(where)}</code></li>")
    home = finding.place.path
    blocks = [_excerpt(path, group, record, titled=path != home) for path, group in marks.items()]
    if apart:
        blocks.append(f'<ul class="apart">{"".join(apart)}</ul>')
    return "\n".join(blocks)


def _excerpt(path: str, marks: list[Mark], record: Record, *, titled: bool) -> str:
    by_line: dict[int, list[Mark]] = {}
    for each in sorted(marks, key=lambda each: (not each.is_main, each.start)):
        by_line.setdefault(each.line, []).append(each)
    known = record.quotes.get(path, {})
    shown = sorted(set(_near(by_line, known)) | by_line.keys())
    rows: list[str] = []
    previous = None
    for line in shown:
        if previous is not None and line > previous + 1:
            rows.append('<div class="row gap"><span class="no">⋯</span></div>')
        rows.append(_row(line, known.get(line, ""), by_line.get(line, [])))
        previous = line
    name = visible(record.shown(path))
    title = f'<div class="file">{escape(name)}</div>' if titled else ""
    said = f'class="excerpt" tabindex="0" role="group" aria-label="Lines of {escape(name)}"'
    return f"<div {said}>{title}{''.join(rows)}</div>"


def _near(lines: Iterable[int], known: Iterable[int]) -> list[int]:
    there = set(known)
    near = (range(line - _AROUND, line + _AROUND + 1) for line in lines)
    return [number for each in near for number in each if number in there]


def _row(number: int, text: str, marks: list[Mark]) -> str:
    if not marks:
        return _line("", number, escape(_code(text)), "")
    text = marks[0].text
    role = "main" if marks[0].is_main else "related"
    first, last = marks[0].start, max(marks[0].end, marks[0].start)
    parts = (text[:first], text[first:last], text[last:])
    # Tabs are widened before the text is cut, so that the cuts do not move their stops.
    before, inside, after = (escape(_code(part)) for part in parts)
    body = f"{before}<mark>{inside}</mark>{after}"
    labels = dict.fromkeys(each.label for each in marks if each.label)
    said = escape(visible(", ".join(labels)))
    return _line(role, number, body, f'<span class="label">{said}</span>' if said else "")


def _line(role: str, number: int, body: str, label: str) -> str:
    extra = f" {role}" if role else ""
    return (
        f'<div class="row{extra}"><span class="no">{number}</span><code>{body}</code>{label}</div>'
    )


def _code(text: str) -> str:
    return visible(text.replace("\t", " " * _TAB))
