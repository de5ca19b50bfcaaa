"""Fixes, proved: an edit stands only if what it leaves is judged better, and nowhere worse."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from instep.check.in_tests import is_in_test
from instep.check.rewriting import apply, changes, rewritten
from instep.rules.finding import Fix
from instep.rules.registry import rule
from instep.rules.source import Source
from instep.trace.plain import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from instep.check.judge import Judgement
    from instep.check.units import Unit
    from instep.rules.finding import Edit, Finding
    from instep.trace import Place

    Judge: TypeAlias = Callable[[Unit], Judgement]
    Accept: TypeAlias = Callable[[Unit, Sequence[Finding]], Sequence[Finding]]

_MOST_TRIED = 6  # candidates of one finding
_MOST_JOINED = 2  # findings that a fix brings to light and mends as well
_MOST_WORK = 200_000  # events that rules look at, in all texts of one unit together
_MOST_JUDGED = 40  # texts of one unit, where nobody has asked for fixes yet
_MOST_LINES = 100_000  # of all these texts together
_MOST_KEPT = 20_000  # lines of texts whose judgements are kept, with their trees


@dataclass(frozen=True, slots=True)
class Fixed:
    """A unit's text with every fix in it that could be proved, and what is left to say."""

    text: str
    fixed: tuple[Finding, ...]
    remaining: tuple[Finding, ...]
    """Positions are those of `text`; each has its fix, if there is one that was not wanted."""


@dataclass(frozen=True, slots=True)
class _Proof:
    fix: Fix
    unit: Unit
    judgement: Judgement


class _SpentError(Exception):
    """As many texts were judged as may be."""


class _Texts:
    """The texts that fixes make of a unit, each judged once: the names that one import brings are
    mended by one fix, and each of their findings offers it.
    """

    def __init__(self, judge: Judge, most: int | None = None) -> None:
        self._judge = judge
        self._most = most  # None: as many as there are
        self._lines = 0
        self._known: dict[str, tuple[Unit, Judgement]] = {}

    def judged(self, unit: Unit, text: str) -> tuple[Unit, Judgement] | None:
        """Return a unit as it is read with another text, and what is said about it; None if there
        is no such unit.
        """
        known = self._known.get(text)
        new = rewritten(unit, text) if known is None else None
        if new is None:
            return known
        self._lines += text.count("\n")
        if self._most is not None:
            self._most -= 1
            if self._most < 0 or self._lines > _MOST_LINES:
                raise _SpentError
        judged = new, self._judge(new)
        if self._lines <= _MOST_KEPT:
            self._known[text] = judged
        return judged


def prove(unit: Unit, finding: Finding, judgement: Judgement, *, judge: Judge) -> Fix | None:
    """Return a fix of a finding after which its rule finds less and no rule finds more."""
    proof = _prove(unit, finding, judgement, _source(unit, judgement), _Texts(judge))
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
    texts = _Texts(judge, max(2, min(_MOST_JUDGED, _MOST_WORK // max(judgement.work, 1))))
    source = _source(unit, judgement)
    wanted = judgement.findings if findings is None else findings
    together = _prove_together(unit, wanted, judgement, source, texts)
    found = []
    for finding in wanted:
        fix = together.get((finding.code, finding.place))
        if fix is None:
            try:
                proof = _prove(unit, finding, judgement, source, texts)
            except _SpentError:
                proof = None
            fix = None if proof is None else proof.fix
        found.append(replace(finding, fix=fix))
    return tuple(found)


def _prove_together(
    unit: Unit, findings: Sequence[Finding], before: Judgement, source: Source, texts: _Texts
) -> dict[tuple[str, Place], Fix]:
    """Return fixes by code and place that are proved at once: of rules whose findings stand apart,
    all of a rule or none.
    """
    proved: dict[tuple[str, Place], Fix] = {}
    for code in dict.fromkeys(finding.code for finding in findings):
        same = [finding for finding in findings if finding.code == code]
        if len(same) > 1 and getattr(rule(code), "APART", False):
            first = [(finding, next(_candidates(finding, source), None)) for finding in same]
            fixes = {(f.code, f.place): fix for f, fix in first if fix is not None}
            edits = dict.fromkeys(edit for fix in fixes.values() for edit in fix.edits)
            after = _after(unit, tuple(edits), texts) if len(fixes) == len(same) else None
            if after is not None and _is_better(code, before, after, by=len(same)):
                proved.update(fixes)
    return proved


def _after(unit: Unit, edits: tuple[Edit, ...], texts: _Texts) -> Judgement | None:
    try:
        proof = _try(unit, Fix("all of them", edits), texts)
    except _SpentError:
        return None
    return None if proof is None else proof.judgement


def fix_unit(unit: Unit, *, unsafe: bool, judge: Judge, accept: Accept) -> Fixed:
    """Make one proved fix after another until there is none left.

    Each leaves fewer findings than there were, so this ends, and a second run finds nothing to do.
    `accept` picks the findings that the user wants to hear of; `unsafe` says whether fixes are made
    that change what looks deliberate.
    """
    fixed: list[Finding] = []
    judgement = judge(unit)
    while True:
        texts = _Texts(judge)
        remaining: list[Finding] = []
        source = _source(unit, judgement)
        for finding in accept(unit, judgement.findings):
            proof = _prove(unit, finding, judgement, source, texts)
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
    unit: Unit, finding: Finding, judgement: Judgement, source: Source, texts: _Texts
) -> _Proof | None:
    tried: set[tuple[Edit, ...]] = set()
    for fix in _candidates(finding, source):
        if fix.edits in tried:
            continue
        if len(tried) == _MOST_TRIED:
            break
        tried.add(fix.edits)
        proof = _try(unit, fix, texts)
        proof = proof and _join(unit, finding, judgement, proof, texts)
        if proof is not None:
            return proof
    return None


def _candidates(finding: Finding, source: Source) -> Iterator[Fix]:
    mend = getattr(rule(finding.code), "mend", None)
    if mend is not None and not is_in_test(finding):
        yield from mend(finding, source)


def _try(unit: Unit, fix: Fix, texts: _Texts) -> _Proof | None:
    try:
        text = apply(unit.text, fix.edits)
    except ValueError:
        return None
    judged = None if text == unit.text else texts.judged(unit, text)
    return None if judged is None else _Proof(fix, *judged)


def _join(
    unit: Unit, finding: Finding, before: Judgement, proof: _Proof, texts: _Texts
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
            joined = _try(proof.unit, fix, texts)
            if joined and _is_mended(found.code, proof.judgement, joined.judgement):
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


def _is_better(code: str, before: Judgement, after: Judgement, *, by: int = 1) -> bool:
    less = _is_mended(code, before, after, by=by)
    blind = Counter(u.reason for u in after.unjudged) - Counter(u.reason for u in before.unjudged)
    # Paths may become fewer, since a branch may go; but something must still be seen.
    seen = bool(after.loops) >= bool(before.loops) and not blind
    return less and seen and not _more(before, after)


def _is_mended(code: str, before: Judgement, after: Judgement, *, by: int = 1) -> bool:
    """Say whether a rule finds less, and by more than having become blind to it."""
    if _count(code, before) - _count(code, after) < by:
        return False
    is_mended = getattr(rule(code), "is_mended", None)
    return is_mended is None or bool(is_mended(before.views, after.views))
