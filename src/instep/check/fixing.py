"""Fixes, proved: an edit stands only if what it leaves is judged better, and nowhere worse."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from instep.check.rewriting import apply, changes, rewritten
from instep.rules.finding import Fix
from instep.rules.registry import rulebook
from instep.rules.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from instep.check.judge import Judgement
    from instep.check.units import Unit
    from instep.rules.finding import Edit, Finding

    Judge: TypeAlias = Callable[[Unit], Judgement]
    Accept: TypeAlias = Callable[[Unit, Sequence[Finding]], Sequence[Finding]]

_MOST_TRIED = 6  # candidates of one finding
_MOST_JOINED = 2  # findings that a fix brings to light and mends as well
_MOST_JUDGED = 40  # texts of one unit, where nobody has asked for fixes yet


@dataclass(frozen=True, slots=True)
class Fixed:
    """A unit's text with every fix in it that could be proved, and what is left to say."""

    text: str
    fixed: tuple[Finding, ...]
    remaining: tuple[Finding, ...]
    """Positions are those of `text`; each has its fix, if there is one that was not wanted."""


class _Proof(NamedTuple):
    fix: Fix
    unit: Unit
    judgement: Judgement


def prove(unit: Unit, finding: Finding, judgement: Judgement, *, judge: Judge) -> Fix | None:
    """Return a fix of a finding after which its rule finds less and no rule finds more."""
    proof = _prove(unit, finding, judgement, judge)
    return None if proof is None else proof.fix


def with_fixes(unit: Unit, judgement: Judgement, *, judge: Judge) -> tuple[Finding, ...]:
    """Return the findings of a judgement, each with its fix where one can be proved.

    A unit with very many findings gets fixes for the first of them; `fix_unit` finds the rest.
    """
    limited = _limited(judge)
    found = []
    for finding in judgement.findings:
        try:
            fix = prove(unit, finding, judgement, judge=limited)
        except _SpentError:
            fix = None
        found.append(replace(finding, fix=fix))
    return tuple(found)


class _SpentError(Exception):
    """As many texts were judged as may be."""


def _limited(judge: Judge) -> Judge:
    left = iter(range(_MOST_JUDGED))

    def limited(unit: Unit) -> Judgement:
        if next(left, None) is None:
            raise _SpentError
        return judge(unit)

    return limited


def fix_unit(unit: Unit, *, unsafe: bool, judge: Judge, accept: Accept) -> Fixed:
    """Make one proved fix after another until there is none left.

    Each leaves fewer findings than there were, so this ends, and a second run finds nothing to do.
    `accept` picks the findings that the user wants to hear of; `unsafe` says whether fixes are made
    that change what looks deliberate.
    """
    fixed: list[Finding] = []
    judgement = judge(unit)
    while True:
        remaining: list[Finding] = []
        for finding in accept(unit, judgement.findings):
            proof = _prove(unit, finding, judgement, judge)
            if proof is not None and (unsafe or proof.fix.is_safe):
                fixed.append(replace(finding, fix=proof.fix))
                unit, judgement = proof.unit, proof.judgement
                break
            remaining.append(replace(finding, fix=None if proof is None else proof.fix))
        else:
            return Fixed(unit.text, tuple(fixed), tuple(remaining))


def _prove(unit: Unit, finding: Finding, judgement: Judgement, judge: Judge) -> _Proof | None:
    tried: set[tuple[Edit, ...]] = set()
    for fix in _candidates(unit, finding, judgement):
        if fix.edits in tried:
            continue
        if len(tried) == _MOST_TRIED:
            break
        tried.add(fix.edits)
        proof = _try(unit, fix, judge)
        proof = proof and _join(unit, finding, judgement, proof, judge)
        if proof is not None:
            return proof
    return None


def _candidates(unit: Unit, finding: Finding, judgement: Judgement) -> Iterator[Fix]:
    rule = rulebook().get(finding.code)
    mend = getattr(rule, "mend", None)
    if mend is not None:
        yield from mend(finding, Source(unit.text, unit.tree, judgement.nodes))


def _try(unit: Unit, fix: Fix, judge: Judge) -> _Proof | None:
    try:
        text = apply(unit.text, fix.edits)
    except ValueError:
        return None
    new = None if text == unit.text else rewritten(unit, text)
    return None if new is None else _Proof(fix, new, judge(new))


def _join(
    unit: Unit, finding: Finding, before: Judgement, proof: _Proof, judge: Judge
) -> _Proof | None:
    """Mend what a fix has brought to light, too: the sum is what must be proved.

    A clear in the right place can show that the last window is lost, which nothing could say
    while every window was.
    """
    for _ in range(_MOST_JOINED + 1):
        if _is_better(finding.code, before, proof.judgement):
            return proof
        worse = _more(before.findings, proof.judgement.findings)
        found = next((f for f in proof.judgement.findings if f.code in worse), None)
        if found is None:
            return None
        for fix in _candidates(proof.unit, found, proof.judgement):
            joined = _try(proof.unit, fix, judge)
            if joined and _count(found.code, joined.judgement) < _count(
                found.code, proof.judgement
            ):
                break
        else:
            return None
        edits = changes(unit.text, joined.unit.text)
        safe = proof.fix.is_safe and fix.is_safe
        whole = Fix(f"{proof.fix.title}, and {fix.title}", edits, is_safe=safe)
        proof = _Proof(whole, joined.unit, joined.judgement)
    return None


def _more(before: Sequence[Finding], after: Sequence[Finding]) -> set[str]:
    return set(Counter(f.code for f in after) - Counter(f.code for f in before))


def _count(code: str, judgement: Judgement) -> int:
    return sum(finding.code == code for finding in judgement.findings)


def _is_better(code: str, before: Judgement, after: Judgement) -> bool:
    less = _count(code, after) < _count(code, before)
    blind = Counter(u.reason for u in after.unjudged) - Counter(u.reason for u in before.unjudged)
    # Paths may become fewer, since a branch may go; but something must still be seen.
    seen = bool(after.loops) >= bool(before.loops) and not blind
    return less and seen and not _more(before.findings, after.findings)
