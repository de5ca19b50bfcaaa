"""Findings as workflow commands, which GitHub shows beside the changed lines of a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.reports.escape import visible
from instep.reports.options import DEFAULT
from instep.reports.positions import condition_of, in_order, span_of
from instep.rules import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.reports.options import Options
    from instep.reports.positions import Source
    from instep.rules import Finding

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(findings: Iterable[Finding], source: Source, options: Options = DEFAULT) -> str:  # noqa: ARG001  # all renderers are called alike
    """Return one workflow command a line."""
    return "".join(f"{_command(finding, source)}\n" for finding in in_order(findings))


def escape_message(text: str) -> str:
    r"""Escape what follows the second `::`.

    >>> escape_message("50 %\nlost: 2")
    '50 %25%0Alost: 2'
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Escape the value of a property.

    >>> escape_property("a,b:c.py")
    'a%2Cb%3Ac.py'
    """
    return escape_message(text).replace(":", "%3A").replace(",", "%2C")


def _command(finding: Finding, source: Source) -> str:
    properties = {
        "file": visible(finding.place.path),
        **_lines(finding, source),
        "title": visible(f"{finding.code} {finding.name}"),
    }
    shown = ",".join(f"{name}={escape_property(text)}" for name, text in properties.items())
    return f"::{_COMMANDS[finding.severity]} {shown}::{escape_message(_message(finding))}"


def _lines(finding: Finding, source: Source) -> dict[str, str]:
    # A line of a notebook cell is no line of the file: GitHub would mark the wrong one.
    if finding.place.cell is not None:
        return {}
    span = span_of(finding.place, source)
    found = {"line": str(span.line)}
    # The runner throws columns away, with a complaint, where the span has several lines.
    has_columns = span.line == span.end_line
    if has_columns and span.column is not None:
        found["col"] = str(span.column)
    found["endLine"] = str(span.end_line)
    if has_columns and span.end_column is not None:
        found["endColumn"] = str(span.end_column)
    return found


def _message(finding: Finding) -> str:
    place, condition = finding.place, condition_of(finding)
    lines = [finding.message]
    if place.cell is not None:
        lines[0] = f"cell {place.cell}, line {place.line}: {finding.message}"
    if condition is not None:
        lines.append(condition)
    for related in finding.related:
        other = "" if related.place.path == place.path else f"{related.place.path}, "
        cell = "" if related.place.cell is None else f"cell {related.place.cell}, "
        lines.append(f"{related.label}: {other}{cell}line {related.place.line}")
    if finding.fix is not None:
        lines.append(f"fix: {finding.fix.title}")
    return "\n".join(map(visible, lines))
