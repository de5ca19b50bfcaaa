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
_MOST_WORK = 200_000  # events that rules look at, in all texts of one unit together
_MOST_JUDGED = 40  # texts of one unit, where nobody has asked for fixes yet
_MOST_LINES = 100_000  # of all these texts together


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
    proof = _prove(unit, finding, judgement, _source(unit, judgement), judge)
    return None if proof is None else proof.fix


def with_fixes(
    unit: Unit,
    judgement: Judgement,
    *,
    judge: Judge,
    findings: Sequence[Finding] | None = None,
) -> tuple[Finding, ...]:
    """Return findings of a judgement, all if not given, each with its fix if one can be proved.

    A unit with very many findings gets fixes for the first of them; `fix_unit` finds the rest.
    """
    limited = _limited(judge, judgement)
    source = _source(unit, judgement)
    found = []
    for finding in judgement.findings if findings is None else findings:
        try:
            proof = _prove(unit, finding, judgement, source, limited)
        except _SpentError:
            proof = None
        found.append(replace(finding, fix=None if proof is None else proof.fix))
    return tuple(found)


class _SpentError(Exception):
    """As many texts were judged as may be."""


def _limited(judge: Judge, judgement: Judgement) -> Judge:
    texts = lines = 0
    most = max(2, min(_MOST_JUDGED, _MOST_WORK // max(judgement.work, 1)))

    def limited(unit: Unit) -> Judgement:
        nonlocal texts, lines
        texts, lines = texts + 1, lines + unit.text.count("\n")
        if texts > most or lines > _MOST_LINES:
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
        source = _source(unit, judgement)
        for finding in accept(unit, judgement.findings):
            proof = _prove(unit, finding, judgement, source, judge)
            if proof is not None and (unsafe or proof.fix.is_safe):
                fixed.append(replace(finding, fix=proof.fix))
                unit, judgement = proof.unit, proof.judgement
                break
            remaining.append(replace(finding, fix=None if proof is None else proof.fix))
        else:
            return Fixed(unit.text, tuple(fixed), tuple(remaining))


def _source(unit: Unit, judgement: Judgement) -> Source:
    return Source(unit.text, unit.tree, judgement.nodes)


def _prove(
    unit: Unit, finding: Finding, judgement: Judgement, source: Source, judge: Judge
) -> _Proof | None:
    tried: set[tuple[Edit, ...]] = set()
    for fix in _candidates(finding, source):
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


def _candidates(finding: Finding, source: Source) -> Iterator[Fix]:
    rule = rulebook().get(finding.code)
    mend = getattr(rule, "mend", None)
    if mend is not None:
        yield from mend(finding, source)


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
        worse = _more(before, proof.judgement)
        found = next((f for f in proof.judgement.findings if f.code in worse), None)
        if found is None:
            return None
        for fix in _candidates(found, _source(proof.unit, proof.judgement)):
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


def _more(before: Judgement, after: Judgement) -> set[str]:
    return set(_counted(after) - _counted(before))


def _count(code: str, judgement: Judgement) -> int:
    return _counted(judgement)[code]


def _counted(judgement: Judgement) -> Counter[str]:
    # What a fix moves into a file that this one imports is not mended.
    return Counter(f.code for f in (*judgement.findings, *judgement.elsewhere))


def _is_better(code: str, before: Judgement, after: Judgement) -> bool:
    less = _count(code, after) < _count(code, before)
    blind = Counter(u.reason for u in after.unjudged) - Counter(u.reason for u in before.unjudged)
    # Paths may become fewer, since a branch may go; but something must still be seen.
    seen = bool(after.loops) >= bool(before.loops) and not blind
    return less and seen and not _more(before, after)
