"""Outcomes as plain lists, and back, for the cache."""

from __future__ import annotations

from typing import Any

from instep.check.outcome import Outcome, Unjudged
from instep.check.problems import Diagnostic
from instep.rules.finding import Edit, Finding, Fix, Related, Severity
from instep.trace import Place

_PLACE = (
    "path",
    "line",
    "column",
    "end_line",
    "end_column",
    "function",
    "snippet",
    "cell",
)


def packed(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON can hold it. Evidence is left out: no report reads it."""
    known = outcome.diagnostic
    return {
        "path": outcome.path,
        "findings": [_finding(each) for each in outcome.findings],
        "unjudged": [[_place(each.place), each.reason] for each in outcome.unjudged],
        "loops": outcome.loops,
        "silenced": [_finding(each) for each in outcome.silenced],
        "elsewhere": [_finding(each) for each in outcome.elsewhere],
        "diagnostic": known
        and [known.kind, _place(known.place), known.what, known.why, known.fix, known.more],
        "followed": outcome.followed,
    }


def outcome_of(entry: dict[str, Any]) -> Outcome:
    """Return the outcome that was packed."""
    known = entry["diagnostic"]
    return Outcome(
        entry["path"],
        findings=tuple(_finding_of(each) for each in entry["findings"]),
        unjudged=tuple(Unjudged(Place(*place), reason) for place, reason in entry["unjudged"]),
        loops=entry["loops"],
        silenced=tuple(_finding_of(each) for each in entry["silenced"]),
        elsewhere=tuple(_finding_of(each) for each in entry["elsewhere"]),
        diagnostic=known and Diagnostic(known[0], Place(*known[1]), *known[2:]),
        followed=tuple(entry["followed"]),
    )


def _place(place: Place) -> list[Any]:
    return [getattr(place, name) for name in _PLACE]


def _finding(found: Finding) -> dict[str, Any]:
    fix = found.fix
    return {
        "code": found.code,
        "name": found.name,
        "severity": int(found.severity),
        "place": _place(found.place),
        "message": found.message,
        "related": [[_place(each.place), each.label] for each in found.related],
        "advice": found.advice,
        "condition": found.condition,
        "fix": fix and [fix.title, [_edit(edit) for edit in fix.edits], fix.is_safe],
    }


def _edit(edit: Edit) -> list[Any]:
    return [edit.line, edit.column, edit.end_line, edit.end_column, edit.text]


def _finding_of(entry: dict[str, Any]) -> Finding:
    fix = entry["fix"]
    return Finding(
        entry["code"],
        entry["name"],
        Severity(entry["severity"]),
        Place(*entry["place"]),
        entry["message"],
        related=tuple(Related(Place(*place), label) for place, label in entry["related"]),
        advice=entry["advice"],
        condition=entry["condition"],
        fix=fix and Fix(fix[0], tuple(Edit(*edit) for edit in fix[1]), fix[2]),
    )
