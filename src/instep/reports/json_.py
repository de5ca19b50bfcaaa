"""Findings as JSON: a list of objects, for programs.

Lines and columns count from 1, columns in characters (Unicode code points); ends are excluded.
Every key is always there, in the same order; what is not known is null. In a notebook, `cell`
says which cell the lines are counted in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.reports.encode import dump
from instep.reports.options import DEFAULT
from instep.reports.positions import condition_of, in_order, span_between, span_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.reports.options import Options
    from instep.reports.positions import Source, Span
    from instep.rules import Finding
    from instep.trace import Place


def render(findings: Iterable[Finding], source: Source, options: Options = DEFAULT) -> str:  # noqa: ARG001  # all renderers are called alike
    """Return the findings as a JSON list."""
    return dump([_object(finding, source) for finding in in_order(findings)])


def _object(finding: Finding, source: Source) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.word,
        **_where(finding.place, source),
        "message": finding.message,
        "condition": condition_of(finding),
        "fix": _fix(finding, source),
        "related": [
            {**_where(related.place, source), "label": related.label} for related in finding.related
        ],
    }


def _where(place: Place, source: Source) -> dict[str, Any]:
    return {"path": place.path, "cell": place.cell, **_span(span_of(place, source))}


def _span(span: Span) -> dict[str, int | None]:
    return {
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }


def _fix(finding: Finding, source: Source) -> dict[str, Any] | None:
    if finding.fix is None:
        return None
    edits: list[dict[str, Any]] = []
    for edit in finding.fix.edits:
        start, end = (edit.line, edit.column), (edit.end_line, edit.end_column)
        span = span_between(source, finding.place.path, finding.place.cell, start=start, end=end)
        if not span.is_exact:
            # Columns that are only nearly right would damage the file; half a fix would, too.
            edits = []
            break
        edits.append({**_span(span), "text": edit.text})
    return {"title": finding.fix.title, "is_safe": finding.fix.is_safe, "edits": edits}
