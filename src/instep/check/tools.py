"""What a run is made with: the judge and the mender, loaded when the first file needs them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from instep.check.words import WORDS, wanted
from instep.trace.plain import dataclass, field

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Mapping, Sequence

    from instep.check.judged import Judgement, Mended, NotJudged
    from instep.check.units import Unit
    from instep.rules.finding import Finding
    from instep.trace import Place

    Judge = Callable[[Unit], Judgement]
    Accept = Callable[[Unit, Sequence[Finding]], Sequence[Finding]]


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions that a run calls; tests hand in their own."""

    words: tuple[str, ...]
    """A text that holds none of them has nothing to judge."""
    judge: Judge
    """By all rules: a fix must not make worse what was not asked for, either."""
    with_fixes: Callable[[Unit, Judgement, Sequence[Finding], Judge], tuple[Finding, ...]]
    mend: Callable[[Unit, bool, Judge, Accept], Mended]
    judge_with: Callable[[Mapping[str, bytes]], Judge] | None = None
    """A judge for whom some files, by their absolute paths, hold what is not written yet."""


@dataclass(frozen=True, slots=True)
class _Nothing:
    """The judgement of a text with nothing to judge."""

    findings: tuple[Finding, ...] = ()
    again: tuple[tuple[str, Place], ...] = ()
    elsewhere: tuple[Finding, ...] = ()
    unjudged: tuple[NotJudged, ...] = ()
    loops: int = 0
    followed: frozenset[str] = frozenset()
    nodes: Mapping[Place, ast.AST] = field(default_factory=dict)


def load() -> Tools:
    """Return the real ones, with one project for all files: what they follow is read once."""
    return Tools(WORDS, _judge_with({}), _with_fixes, _mend, _judge_with)


def _judge_with(texts: Mapping[str, bytes]) -> Judge:
    project = cache(lambda: _judging().Project(texts))

    def judge(unit: Unit) -> Judgement:
        if not wanted(unit.text):
            return _Nothing()
        judged: Judgement = _judging().judge(unit, project=project())
        return judged

    return judge


def _with_fixes(
    unit: Unit, judgement: Judgement, findings: Sequence[Finding], again: Judge
) -> tuple[Finding, ...]:
    found: tuple[Finding, ...] = _fixing().with_fixes(
        unit, judgement, judge=again, findings=findings
    )
    return found


def _mend(
    unit: Unit,
    unsafe: bool,  # noqa: FBT001  # an adapter; callers of `mend` name it
    again: Judge,
    accept: Accept,
) -> Mended:
    mended: Mended = _fixing().fix_unit(unit, unsafe=unsafe, judge=again, accept=accept)
    return mended


@cache
def _judging() -> Any:
    return import_module("instep.check.judge")


@cache
def _fixing() -> Any:
    return import_module("instep.check.fixing")
