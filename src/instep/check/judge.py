"""From a unit to findings: its paths are executed, and the rules judge their traces."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute.entries import Path, Runner
from instep.check.execute.program import Module, Project
from instep.check.in_tests import milder_in_tests
from instep.check.words import wanted
from instep.rules.finding import Severity
from instep.rules.verdict import judge_all
from instep.rules.view import View
from instep.trace.plain import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from instep.check.units import Unit
    from instep.rules.finding import Finding
    from instep.trace import Place

__all__ = ["Judgement", "Project", "Unjudged", "judge", "wanted"]


_OF_EVERY_PATH = frozenset({"INS104"})
"""Rules whose mistake is no mistake on the path that a guard takes once in a while."""


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A loop that could not be followed, and why."""

    place: Place
    reason: str


@dataclass(frozen=True)
class Judgement:
    """What the rules say about a unit."""

    findings: tuple[Finding, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()
    loops: int = 0
    """Paths on which gradients were computed and used."""
    work: int = 0
    """Events that the rules looked at, once per optimizer: what judging it again would cost."""
    nodes: Mapping[Place, ast.AST] = field(default_factory=dict, repr=False)
    again: frozenset[tuple[str, Place]] = frozenset()
    """Findings, by code and place, that say of the other branch of an `if` what one says already: a
    fix has to mend both, and a reader need not hear it twice."""
    elsewhere: tuple[Finding, ...] = ()
    """Mistakes in files that this one imports, which show only together with it."""
    followed: frozenset[str] = frozenset()
    """Other files that the judgement rests on; some of them need not exist."""
    views: tuple[View, ...] = field(default=(), repr=False)
    """What the rules were shown, path by path."""


def judge(
    unit: Unit,
    *,
    codes: frozenset[str] | None = None,
    project: Project | None = None,
    file: str | None = None,
) -> Judgement:
    """Judge a unit. `file` is where it lies, for its imports; as shown to the user if not given."""
    if not wanted(unit.text):
        return Judgement()
    project = project if project is not None else Project()
    module = project.adopt(unit, file if file is not None else _file(unit))
    run = Runner(module, project).all()
    found: dict[tuple[str, Place], Finding] = {}
    elsewhere: dict[tuple[str, Place], Finding] = {}
    told: dict[tuple[str, Place], Path] = {}  # the path that showed each
    again: set[tuple[str, Place]] = set()
    views = tuple(View(path.trace) for path in run.paths)
    for path, view in zip(run.paths, views, strict=True):
        for finding in map(milder_in_tests, judge_all(view, codes)):
            if path.forced and finding.code in _OF_EVERY_PATH:
                continue
            if path.unseen and finding.severity is Severity.ERROR:
                # What was not followed may clear, or step, or go backward.
                finding = replace(finding, severity=Severity.WARNING)  # noqa: PLW2901
            key = (finding.code, finding.place)
            here = found if finding.place in module.nodes else elsewhere
            if key in here:
                if here[key].condition is not None and here[key].message == finding.message:
                    told[key] = _freed(told[key], path)
                    condition = _condition(here[key], told[key], module)
                    here[key] = replace(here[key], condition=condition)
            else:
                if _is_told(finding, path, here, told, module):
                    again.add(key)
                here[key] = replace(finding, condition=_condition(finding, path, module))
                told[key] = path
    first = unit.locator.place(1)
    places = {
        reason: module.place(node) if hasattr(node, "lineno") else first
        for reason, node in run.problems
    }
    return Judgement(
        findings=tuple(sorted(found.values(), key=_order)),
        unjudged=tuple(Unjudged(place, reason) for reason, place in places.items()),
        loops=len(run.paths),
        work=sum(len(path.trace) * (1 + _optimizers(path)) for path in run.paths),
        nodes=module.nodes,
        again=frozenset(again),
        elsewhere=tuple(elsewhere.values()),
        followed=frozenset(project.asked),
        views=views,
    )


def _optimizers(path: Path) -> int:
    return sum(facts["role"] == "optimizer" for facts in path.trace.facts.values())


def _file(unit: Unit) -> str | None:
    return unit.path if unit.kind in {"python", "notebook"} else None


def _order(finding: Finding) -> tuple[int, int, int, str]:
    place = finding.place
    return (place.cell or 0, place.line, place.column or 0, finding.code)


def _is_told(
    finding: Finding,
    path: Path,
    found: Mapping[tuple[str, Place], Finding],
    told: Mapping[tuple[str, Place], Path],
    module: Module,
) -> bool:
    """Say whether the same mistake stands in the other branch of an `if`, and was found there."""
    if not path.forced or finding.place not in module.nodes:
        return False
    taken = {a.node: a for a in path.assumptions if a.module is module}
    line = module.nodes[finding.place].lineno  # type: ignore[attr-defined]
    for (code, place), other in found.items():
        if code != finding.code or place not in module.nodes:
            continue
        there = module.nodes[other.place].lineno  # type: ignore[attr-defined]
        for before in told[code, place].assumptions:
            now = taken.get(before.node)
            if now is None or now.holds == before.holds:
                continue
            if before.first <= there <= before.last and now.first <= line <= now.last:
                return True
    return False


def _freed(path: Path, other: Path) -> Path:
    """Return a path without the assumptions that another one shows not to matter: the same was
    found there in the other branch.
    """
    holds = {assumption.node: assumption.holds for assumption in other.assumptions}
    same = [a for a in path.assumptions if holds.get(a.node, a.holds) == a.holds]
    return Path(path.trace, same, path.forced, path.entry)


def _condition(finding: Finding, path: Path, module: Module) -> str | None:
    """Say under which assumptions a finding holds: those whose branch holds its events."""
    lines = {
        module.nodes[place].lineno  # type: ignore[attr-defined]
        for place in (finding.place, *(related.place for related in finding.related))
        if place in module.nodes
    }
    said: dict[str, bool] = {}  # and whether it is split by an `and` beside it
    for assumption in path.assumptions:
        inside = any(assumption.first <= line <= assumption.last for line in lines)
        if assumption.module is module and inside:
            text = assumption.text if assumption.holds else f"not ({assumption.text})"
            said[text] = assumption.holds and _is_loose(assumption.node)
    if len(said) > 1:
        said = {f"({text})" if loose else text: loose for text, loose in said.items()}
    return f"when {' and '.join(said)}" if said else None


def _is_loose(test: ast.AST) -> bool:
    """Say whether a condition binds its parts less than an `and` does."""
    is_or = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)
    return is_or or isinstance(test, ast.IfExp | ast.Lambda | ast.NamedExpr)
