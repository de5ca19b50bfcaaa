"""Updates that contain the gradients of earlier updates, and which clear stands in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.rules.accumulation import followed, judged, updates, used_by_others
from instep.rules.reading import names
from instep.trace import Backward, Step, Zero
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.view import View
    from instep.trace import WindowRecord


@dataclass(frozen=True, slots=True)
class Stale:
    """The first update of an optimizer that contains gradients of earlier ones."""

    optimizer: str
    window: WindowRecord
    step: Step
    backward: Backward
    """The backward that adds to them."""
    is_never_cleared: bool
    mistaken: Zero | None
    """A clear of another optimizer where one of this optimizer belongs."""


def _is_followed(view: View) -> bool:
    """Say whether whoever manages the loop leaves clearing to it, at moments that are known."""
    return view.facts.get("job", {}).get("managed") == "accelerate"


def stale_updates(view: View) -> list[Stale]:
    """Return the first update of each optimizer that surely contains gradients of earlier ones."""
    return view.read(_stale_updates)


def _stale_updates(view: View) -> list[Stale]:
    return list(_found(view))


def _found(view: View) -> Iterator[Stale]:
    for optimizer, _ in judged(view, trusted=_is_followed(view)):
        for window, step in updates(followed(view, optimizer)):
            if not window.carried or not window.kept:
                continue
            mistaken = _mistaken(view, window)
            if mistaken is not None or not _may_be_cleared(view, window):
                yield Stale(
                    optimizer,
                    window,
                    step,
                    _own(view, window),
                    not any(optimizer in (zero.optimizers or ()) for zero in view.trace.of(Zero)),
                    mistaken,
                )
            break


def _own(view: View, window: WindowRecord) -> Backward:
    """Return the first backward that was made for this optimizer, or simply the first."""
    others = used_by_others(view, window.optimizer)
    return next((b for b in window.kept if id(b) not in others), window.kept[0])


def _clears_of_others(view: View, window: WindowRecord) -> list[Zero]:
    """Return the clears between the last step of an optimizer and this one, of anything else."""
    found: list[Zero] = []
    for event in view.events:
        if event is window.events[-1]:
            break
        if isinstance(event, Step) and event.optimizer == window.optimizer:
            found = []
        elif isinstance(event, Zero) and window.optimizer not in (event.optimizers or ()):
            found.append(event)
    return found


def _may_be_cleared(view: View, window: WindowRecord) -> bool:
    """Say whether a clear of something else may have cleared these gradients after all."""
    mine = names(view.facts.get(window.optimizer, {}).get("models"))
    sources = {model for backward in window.kept for model in backward.models or ()}
    # A running job tells of every optimizer whose parameters a clear has cleared.
    is_exact = view.facts.get("job", {}).get("source") == "watch"
    for zero in _clears_of_others(view, window):
        if not zero.optimizers or zero.target in sources:
            return True  # of a model that may hold the same parameters, or does for this loss
        for other in () if is_exact else zero.optimizers:
            theirs = names(view.facts.get(other, {}).get("models"))
            if not _steps(view, other):
                return True  # perhaps the same optimizer by another name
            if mine is not None and theirs is not None and not set(mine).isdisjoint(theirs):
                return True
    return False


def _mistaken(view: View, window: WindowRecord) -> Zero | None:
    """Find the clear of another optimizer that was meant for this one.

    The other one is cleared at two places of the window, or is never stepped at all.
    """
    if any(window.optimizer in (zero.optimizers or ()) for zero in view.trace.of(Zero)):
        return None
    clears = _clears_of_others(view, window)
    before = _before(view, clears, _own(view, window))
    if before is None or len(before.optimizers or ()) != 1:
        return None
    (other,) = before.optimizers or ()
    if not all(view.facts.get(id_, {}).get("written") for id_ in (other, window.optimizer)):
        return None
    mine, theirs = (
        names(view.facts.get(id_, {}).get("models")) for id_ in (window.optimizer, other)
    )
    if mine is not None and theirs is not None and not set(mine).isdisjoint(theirs):
        return None
    is_twice = len({zero.place for zero in clears if zero.optimizers == (other,)}) > 1
    return before if is_twice or not _steps(view, other) else None


def _before(view: View, clears: list[Zero], backward: Backward) -> Zero | None:
    """Return the last of these clears before a backward, or else the last of all."""
    wanted = {id(zero) for zero in clears}
    found = None
    for event in view.events:
        if event is backward and found is not None:
            return found
        if id(event) in wanted and isinstance(event, Zero):
            found = event
    return found


def _steps(view: View, optimizer: str) -> bool:
    return any(step.optimizer in {optimizer, None} for step in view.trace.of(Step))
