"""Findings in files that others import: each is reported under its own file, by its own rules.

A helper that clips too early shows it only together with the loop that calls it. The comments, the
settings and the excludes that count are those of the helper's file.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from instep.check.outcome import Outcome
from instep.check.problems import Diagnostic
from instep.check.sources import read_units, units_from_bytes
from instep.check.suppressions import UNUSED_CODE, suppress
from instep.trace.plain import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from instep.check.options import Settings
    from instep.check.units import Unit
    from instep.rules.finding import Finding

    Found = dict[str, list[Finding]]


def gathered(
    outcomes: Sequence[Outcome],
    files: Sequence[str],
    settings: Settings,
    is_out: Callable[[str], bool],
) -> tuple[Outcome, ...]:
    """Return the outcomes with what was found elsewhere under the files that it is in.

    A file that is not among those of the run is reported all the same, unless it `is_out`: somebody
    asked about a loop that uses it.
    """
    found = by_file(outcomes)
    if not found:
        return tuple(outcomes)
    shown = {_absolute(path): path for path in files}
    own = {_absolute(outcome.path): outcome for outcome in outcomes}
    for file, findings in found.items():
        if file in shown or not is_out(file):
            path = shown.get(file, findings[0].place.path)
            own[file] = _joined(own.get(file) or Outcome(path), file, findings, settings)
    order = {file: at for at, file in enumerate(shown)}
    return tuple(own[file] for file in sorted(own, key=lambda file: order.get(file, len(order))))


def by_file(outcomes: Iterable[Outcome]) -> Found:
    """Return all that was found elsewhere by the absolute path of the file that it is in."""
    found: Found = defaultdict(list)
    for outcome in outcomes:
        for finding in outcome.elsewhere:
            found[_absolute(finding.place.path)].append(finding)
    return dict(found)


def _joined(own: Outcome, file: str, findings: Sequence[Finding], settings: Settings) -> Outcome:
    codes = settings.codes_for(own.path) & frozenset(settings.rules)
    own = _graver(own, findings)
    seen = {_key(finding) for finding in (*own.findings, *own.silenced, *own.fixed)}
    new: dict[object, Finding] = {}
    for finding in findings:
        if finding.code in codes and _key(finding) not in seen:
            new.setdefault(_key(finding), _named(finding, own.path))
    if not new:
        return own
    units = _units(own, file)
    if isinstance(units, Diagnostic) or len(units) != 1:
        return own  # it has changed just now
    heard = suppress(units[0], tuple(new.values()), settings.rules, checked=codes)
    if heard.silenced:
        unused = {(finding.place, finding.message) for finding in heard.unused}
        kept = [f for f in own.findings if f.code != UNUSED_CODE or (f.place, f.message) in unused]
        own = replace(own, findings=tuple(kept), silenced=(*own.silenced, *heard.silenced))
    return replace(own, findings=tuple(sorted((*own.findings, *heard.kept), key=_position)))


def _graver(own: Outcome, findings: Sequence[Finding]) -> Outcome:
    """Return an outcome whose notes are warnings where who imports the file has shown them to be:
    what is unknown in one file, as the model that a function is given, is known in the other.
    """
    known: dict[object, Finding] = {}
    for finding in findings:
        before = known.get(_key(finding))
        if before is None or finding.severity > before.severity:
            known[_key(finding)] = finding
    shown = tuple(
        finding
        if (graver := known.get(_key(finding))) is None or graver.severity <= finding.severity
        else replace(_named(graver, own.path), fix=finding.fix)
        for finding in own.findings
    )
    return own if shown == own.findings else replace(own, findings=shown)


def _units(own: Outcome, file: str) -> list[Unit] | Diagnostic:
    if own.after is None:
        return read_units(file, shown=own.path)
    return units_from_bytes(own.after, own.path)


def _named(finding: Finding, path: str) -> Finding:
    return replace(finding, place=replace(finding.place, path=path))


def _key(finding: Finding) -> object:
    return (finding.code, finding.place.line, finding.place.column, finding.place.cell)


def _position(finding: Finding) -> tuple[Any, ...]:
    place = finding.place
    return (place.cell or 0, place.line, place.column or 0, finding.code)


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100  # no links followed
