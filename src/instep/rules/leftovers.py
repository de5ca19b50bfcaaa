"""Gradients that stay in `.grad` in ways that only a running job shows for certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.rules.accumulation import judged, quoted, used_by_others
from instep.rules.finding import Severity
from instep.rules.reading import measured, names
from instep.trace import WEIGHTS_MOVED, Backward, Created, GradEdited, Opaque, Step, Zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.view import View
    from instep.trace import Event

_SURE = 2
"""Updates that show the same: one may be a beginning, or an end."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Gradients that an update should not contain, and what is to be said about them."""

    event: Event
    """Where to mend it."""
    message: str
    severity: Severity = Severity.ERROR
    step: Step | None = None
    other: Event | None = None
    """What has left them there."""


def leftovers(view: View) -> Iterator[Leftover]:
    """Give what a running job shows beside updates that are never cleared."""
    if view.facts.get("job", {}).get("source") != "watch":
        return
    yield from _closures(view)
    for optimizer, _ in judged(view):
        yield from _inherited(view, optimizer)
        yield from _of_others(view, optimizer)
    for gauge in measured(view, "updates-by-hand"):
        message = (
            "the weights are updated by hand, and nothing clears their gradients: every update "
            f"also contains those of all earlier ones (after {gauge.value:,.0f} backwards, all of "
            "them were still there)."
        )
        yield Leftover(gauge, message)


def _closures(view: View) -> Iterator[Leftover]:
    """Find closures that are called several times for one update and never clear."""
    for optimizer, windows in view.windows.items():
        closed = [window for window in windows if window.closed_by == "step"]
        several = [w for w in closed if w.steps[-1].closure and len(w.backwards) > 1]
        if len(several) < _SURE or any(not _is_plain(event) for w in windows for event in w.events):
            continue
        step = several[0].steps[-1]
        yield Leftover(
            several[0].backwards[0],
            f"the closure of {quoted([optimizer])} does not clear: each of its calls adds to the "
            "gradients of all calls before it.",
            step=step,
        )


def _is_plain(event: Event) -> bool:
    """Say whether an event leaves the gradients as backwards made them.

    An optimizer that calls a closure again moves the weights in between.
    """
    if isinstance(event, Opaque):
        return event.what == WEIGHTS_MOVED
    return not isinstance(event, Zero | GradEdited)


def _inherited(view: View, optimizer: str) -> Iterator[Leftover]:
    """Find optimizers that are made anew over gradients which the one before has used."""
    for window in view.windows[optimizer]:
        made = next((e for e in window.of(Created) if e.facts.get("inherits")), None)
        if made is None or window.closed_by != "step" or not window.certain or not window.kept:
            continue
        if not window.of(Zero):
            yield Leftover(
                window.kept[0],
                f"{quoted([optimizer])} is made anew, but not the gradients: its update also "
                "contains those that the optimizer before it has used.",
                step=window.steps[-1],
                other=made,
            )
            return


def _of_others(view: View, optimizer: str) -> Iterator[Leftover]:
    """Find updates that also contain what a backward for another optimizer has left.

    A generator's loss goes through the discriminator and fills its gradients as well. Where the
    generator has stepped, that backward has done its work. A sum of both losses may be meant only
    if they are there for one step, so anything else is left alone.
    """
    others = used_by_others(view, optimizer)
    found: list[tuple[Backward, Backward, Step]] = []
    left: Backward | None = None  # of another one, in the gradients of this one
    own: Backward | None = None
    used = unknown = False
    for event in view.events:
        touched = event.touches()
        match event:
            case Step() if event.optimizer == optimizer:
                if left is not None and own is None and not unknown:
                    return  # it is trained on that loss, too
                if left is not None and own is not None and used and not unknown:
                    found.append((left, own, event))
                left, own, used = left if own is None else None, None, False
            case Step() if left is not None and event.optimizer in (left.optimizers or ()):
                used = True
            case _ if touched is None or optimizer not in touched:
                continue
            case Zero() if event.complete:
                left, own, used, unknown = None, None, False, False
            case Zero() | GradEdited() | Opaque():
                unknown = True
            case Backward() if id(event) in others and own is None:
                left, used = event, False
            case Backward() if event.optimizers == (optimizer,) and used:
                own = own or event
            case Backward():
                unknown = True
    if len(found) >= _SURE and _are_apart(view, optimizer, found[0][0]):
        left, own, step = found[0]
        makers = quoted(name for name in left.optimizers or () if name != optimizer)
        yield Leftover(
            own,
            f"the update of {quoted([optimizer])} also contains the gradients that the backward "
            f"for {makers} has left in it: clear them before this backward.",
            Severity.WARNING,
            step,
            left,
        )


def _are_apart(view: View, optimizer: str, backward: Backward) -> bool:
    """Say whether an optimizer shares no model with the others that a backward is for."""
    mine = names(view.facts.get(optimizer, {}).get("models"))
    for other in backward.optimizers or ():
        theirs = names(view.facts.get(other, {}).get("models"))
        if other != optimizer and (not mine or not theirs or not set(mine).isdisjoint(theirs)):
            return False
    return True
