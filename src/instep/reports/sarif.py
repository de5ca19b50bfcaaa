"""Findings as SARIF 2.1.0, for code scanning services and editors.

Regions count from 1, in UTF-16 code units, as `columnKind` says. A line of a notebook cell is no
line of the file, so a finding there stands at the file's first line, says its cell in the message
and as a logical location, and carries no fix.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from instep.reports.encode import dump
from instep.reports.escape import visible
from instep.reports.options import DEFAULT
from instep.reports.positions import condition_of, in_order, span_between, span_of, utf16_units
from instep.rules import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from instep.reports.options import Options, RuleInfo
    from instep.reports.positions import Source, Span
    from instep.rules import Finding
    from instep.trace import Place

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_LINK = re.compile(r"\[(?=[^\]]*\]\()")


def render(findings: Iterable[Finding], source: Source, options: Options = DEFAULT) -> str:
    """Return a SARIF log with one run."""
    found = in_order(findings)
    rules = _rules(options.rules, found)
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    driver: dict[str, Any] = {"name": "instep"}
    if options.version is not None:
        driver["version"] = options.version
    driver["rules"] = rules
    run = {
        "tool": {"driver": driver},
        "columnKind": "utf16CodeUnits",
        "results": [_result(finding, index[finding.code], source) for finding in found],
    }
    return dump({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rules(described: Sequence[RuleInfo], found: Sequence[Finding]) -> list[dict[str, Any]]:
    rules: dict[str, dict[str, Any]] = {}
    for info in described:
        rules[info.code] = {
            "id": info.code,
            "name": info.name,
            "shortDescription": _message(info.summary),
            "defaultConfiguration": {"level": _LEVELS[info.severity]},
        }
        if info.page:
            rules[info.code]["help"] = {"text": info.page, "markdown": info.page}
    for finding in found:
        # What is found without a rule, such as a file that cannot be parsed, has its name alone.
        rules.setdefault(finding.code, {"id": finding.code, "name": finding.name})
    return list(rules.values())


def _result(finding: Finding, rule_index: int, source: Source) -> dict[str, Any]:
    place, condition = finding.place, condition_of(finding)
    said = finding.message if condition is None else f"{finding.message} ({condition})"
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "message": _message(_cell(place) + said),
        "locations": [_location(place, source)],
    }
    if finding.related:
        result["relatedLocations"] = [
            {
                "id": number,
                **_location(related.place, source),
                "message": _message(_cell(related.place) + related.label),
            }
            for number, related in enumerate(finding.related, start=1)
        ]
    if fix := _fix(finding, source):
        result["fixes"] = [fix]
    return result


def _message(text: str) -> dict[str, str]:
    # `[0](x)` would be taken for a link, and `{0}` for the place of an argument.
    plain = visible(text).replace("{", "{{").replace("}", "}}")
    return {"text": _LINK.sub(r"\\[", plain)}


def _cell(place: Place) -> str:
    return "" if place.cell is None else f"cell {place.cell}, line {place.line}: "


def _location(place: Place, source: Source) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(place.path)}}
    if place.cell is not None:
        # Services want a region; this one says "somewhere in the file".
        physical["region"] = {"startLine": 1}
        name = f"cell {place.cell}"
        return {"physicalLocation": physical, "logicalLocations": [{"name": name}]}
    physical["region"] = _region(span_of(place, source, utf16_units))
    return {"physicalLocation": physical}


def _region(span: Span) -> dict[str, int]:
    region = {"startLine": span.line}
    # Without columns a region is whole lines, which is true; bytes for UTF-16 units would not be.
    if span.is_exact and span.column is not None:
        region["startColumn"] = span.column
    region["endLine"] = span.end_line
    if "startColumn" in region and span.end_column is not None:
        region["endColumn"] = span.end_column
    return region


def _fix(finding: Finding, source: Source) -> dict[str, Any] | None:
    place, fix = finding.place, finding.fix
    if fix is None or not fix.edits or place.cell is not None:
        return None
    replacements = []
    for edit in fix.edits:
        start, end = (edit.line, edit.column), (edit.end_line, edit.end_column)
        span = span_between(source, place.path, None, start=start, end=end, measure=utf16_units)
        if not span.is_exact:
            return None
        replacements.append(
            {"deletedRegion": _region(span), "insertedContent": {"text": edit.text}}
        )
    change = {"artifactLocation": {"uri": _uri(place.path)}, "replacements": replacements}
    return {
        "description": _message(fix.title),
        "artifactChanges": [change],
        "properties": {"isSafe": fix.is_safe},
    }


def _uri(path: str) -> str:
    pure = PurePath(path)
    text = pure.as_posix()
    try:
        raw = text.encode("utf-8", "surrogateescape")  # the bytes of a name that is not UTF-8
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "surrogatepass")
    if not pure.is_absolute():
        return quote(raw)
    drive = "/" if pure.drive else ""  # file:///C:/...
    return f"file://{drive}{quote(raw, safe='/:' if drive else '/')}"
