"""All rules over one trace, and which finding stands where two have one cause."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import instep.trace
from instep.rules.registry import needs, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import Event, Place

# A rule, and those whose findings it explains where both name a common place: mending its
# finding removes the other. Order matters for chains only, and there are none.
EXPLAINS: dict[str, frozenset[str]] = {
    # The clear that comes too early is the one too many; and while most micro-batches are lost,
    # the last ones of an epoch are not worth a word.
    "INS102": frozenset({"INS106", "INS202"}),
    "INS105": frozenset({"INS106"}),  # the optimizer cleared twice is cleared in another's place
    "INS204": frozenset({"INS202"}),  # windows that end one too late never end with the epoch
    # Updates are too large or too small for the weights because of what was done to the gradients;
    # and what goes around a scaler is not kept from infinite ones.
    "INS101": frozenset({"INS506"}),
    "INS201": frozenset({"INS506"}),
    "INS303": frozenset({"INS506"}),
    "INS305": frozenset({"INS505", "INS506"}),
    "INS402": frozenset({"INS401"}),  # a schedule at every micro-batch also runs before the step
}


def judge_all(view: View, codes: Collection[str] | None = None) -> list[Finding]:
    """Return what the rules of these codes find, each cause once; None: all rules.

    A rule that is not asked for still explains: ignoring off-by-one-window must not turn its
    findings into leftover-window.
    """
    rules = _needs().keys()
    wanted = rules if codes is None else rules & set(codes)
    needed = wanted | {code for code, explained in EXPLAINS.items() if explained & wanted}
    found: dict[str, list[Finding]] = {}
    for code, kinds in _needs().items():
        if code in needed and kinds <= view.kinds:
            told = list(_judge(code)(view))
            if told:
                found[code] = told
    if not found:
        return []
    kept = [
        finding
        for code in found
        if code in wanted
        for finding in found[code]
        if not _is_explained(finding, found)
    ]
    return sorted(kept, key=_position)


@cache
def _needs() -> dict[str, frozenset[type[Event]]]:
    """Return the kinds of events without which each rule is not asked, by its code, in order."""
    return {
        code: frozenset(getattr(instep.trace, kind) for kind in kinds)
        for code, kinds in needs().items()
    }


@cache
def _judge(code: str) -> Callable[[View], Iterable[Finding]]:
    """Load a rule when a trace has what it needs: most traces lack that of half of them."""
    asked: Callable[[View], Iterable[Finding]] = getattr(rule(code), "judge")  # noqa: B009
    return asked


def _is_explained(finding: Finding, found: dict[str, list[Finding]]) -> bool:
    return any(
        finding.code in explained and not _places(finding).isdisjoint(_places(cause))
        for code, explained in EXPLAINS.items()
        for cause in found.get(code, ())
    )


def _places(finding: Finding) -> set[Place]:
    """Return the places that a finding is about; the evidence holds more than that."""
    return {finding.place, *(related.place for related in finding.related)}


def _position(finding: Finding) -> tuple[str, int, int, int, str]:
    place = finding.place
    return (place.path, place.cell or 0, place.line, place.column or 0, finding.code)
