"""Gradients that stay in `.grad` in ways that only a running job shows for certain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.rules.accumulation import followed, judged, quoted, used_by_others
from instep.rules.finding import Severity
from instep.rules.reading import measured, names
from instep.trace import WEIGHTS_MOVED, Backward, Created, GradEdited, Opaque, Step, Zero
from instep.trace.plain import dataclass, field

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
        yield from _uncleared(view, optimizer)
    for gauge in measured(view, "updates-by-hand"):
        message = (
            "the weights are updated by hand, and nothing clears their gradients: every update "
            f"also contains those of all earlier ones (after {gauge.value:,.0f} backwards, all of "
            "them were still there)."
        )
        yield Leftover(gauge, message)


def _uncleared(view: View, optimizer: str) -> Iterator[Leftover]:
    """Find parameters whose gradients stay where those of others are cleared."""
    for gauge in measured(view, "gradients-uncleared"):
        if gauge.optimizers != (optimizer,):
            continue
        steps = (step for step in view.trace.of(Step) if step.optimizer == optimizer)
        count = int(gauge.value)
        which = "that of 1 parameter" if count == 1 else f"those of {count} parameters"
        verb = "is" if count == 1 else "are"
        yield Leftover(
            gauge,
            f"not all gradients of {quoted([optimizer])} are cleared: {which} ({gauge.subject}) "
            f"{verb} left, and every update also contains what the updates before it have used.",
            step=next(steps, None),
        )


def _closures(view: View) -> Iterator[Leftover]:
    """Find closures that are called several times for one update and never clear."""
    for optimizer in view.windows:
        windows = followed(view, optimizer)
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
    walk = _Walk(optimizer, used_by_others(view, optimizer))
    for event in view.events:
        if isinstance(event, Step):
            walk.step(event)
        elif optimizer in (event.touches() or ()):
            walk.take(event)
    if walk.is_meant or len(walk.found) < _SURE:
        return
    left, own, step = walk.found[0]
    if _are_apart(view, optimizer, left):
        makers = quoted(name for name in left.optimizers or () if name != optimizer)
        yield Leftover(
            own,
            f"the update of {quoted([optimizer])} also contains the gradients that the backward "
            f"for {makers} has left in it: clear them before this backward.",
            Severity.WARNING,
            step,
            left,
        )


@dataclass(slots=True)
class _Walk:
    """What is in the gradients of one optimizer, from event to event."""

    optimizer: str
    others: frozenset[int]
    """The `id` of backwards that steps of other optimizers have used."""
    left: Backward | None = None
    """Of another optimizer."""
    own: Backward | None = None
    """After it, when the other one had stepped."""
    is_used: bool = False
    is_known: bool = True
    is_meant: bool = False
    """It was stepped with nothing but the loss of another one: it is trained on that, too."""
    found: list[tuple[Backward, Backward, Step]] = field(default_factory=list)

    def step(self, step: Step) -> None:
        if step.optimizer != self.optimizer:
            mine = () if self.left is None else self.left.optimizers or ()
            self.is_used = self.is_used or step.optimizer in mine
            return
        if self.left is not None and self.own is not None and self.is_known:
            self.found.append((self.left, self.own, step))
        elif self.left is not None and self.own is None and self.is_known:
            self.is_meant = True
        # What is left in them now is used: that it stays is told of as such.
        self.left, self.own, self.is_used, self.is_known = None, None, False, False

    def take(self, event: Event) -> None:
        match event:
            case Zero() if event.complete:
                self.left, self.own, self.is_used, self.is_known = None, None, False, True
            case Zero() | GradEdited() | Opaque():
                self.is_known = False
            case Backward() if id(event) in self.others and self.own is None:
                self.left, self.is_used = event, False
            case Backward() if event.optimizers == (self.optimizer,) and self.is_used:
                self.own = self.own or event
            case Backward():
                self.is_known = False  # of both, or of its own before the other one's


def _are_apart(view: View, optimizer: str, backward: Backward) -> bool:
    """Say whether an optimizer shares no model with the others that a backward is for."""
    mine = names(view.facts.get(optimizer, {}).get("models"))
    for other in backward.optimizers or ():
        theirs = names(view.facts.get(other, {}).get("models"))
        if other != optimizer and (not mine or not theirs or not set(mine).isdisjoint(theirs)):
            return False
    return True
