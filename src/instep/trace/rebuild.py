"""Windows rebuilt from events: everything between two updates of one optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.trace.base import Event, OnOptimizer, OnOptimizers
from instep.trace.created import Created
from instep.trace.gradients import clears, count_micro_batches
from instep.trace.record import Closing, WindowRecord, told
from instep.trace.surroundings import Drawn, EpochEnd, Opaque
from instep.trace.updates import Backward, GradEdited, Step, WindowDiscarded, Zero

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NAMING = (OnOptimizer, OnOptimizers, Created)
_NAMES: dict[type[Event], bool] = {}  # whether events of a class name optimizers


def windows(events: Iterable[Event]) -> dict[str, tuple[WindowRecord, ...]]:
    """Rebuild the windows of every optimizer that the events name, by its id, in order.

    An event is in exactly one window of each optimizer it touches; one that touches none in
    particular (a batch drawn, the end of an epoch) is in one window of each.

    >>> from instep.trace import Backward, Step, Zero
    >>> o = ("o",)
    >>> first, second = windows([Backward(o), Step("o"), Zero(o), Backward(o)])["o"]
    >>> first.closed_by, second.closed_by, second.cleared
    ('step', None, True)
    """
    events = tuple(events)
    return _rebuilt(events, optimizers(events))


def optimizers(events: Iterable[Event]) -> tuple[str, ...]:
    """Return the ids of all optimizers that the events name, by first appearance."""
    named: dict[str, None] = {}
    for event in events:
        kind = type(event)
        if kind not in _NAMES:
            _NAMES[kind] = issubclass(kind, _NAMING)
        if _NAMES[kind]:
            for name in event.touches() or ():
                named[name] = None
    return tuple(named)


def windows_of(events: Iterable[Event], optimizer: str) -> tuple[WindowRecord, ...]:
    """Rebuild the windows of one optimizer, in order; the last one may be open."""
    return _rebuilt(events, (optimizer,))[optimizer]


def _rebuilt(events: Iterable[Event], names: Iterable[str]) -> dict[str, tuple[WindowRecord, ...]]:
    """Go through the events once for all optimizers: traces of many are long."""
    walks = {name: _Walk(name) for name in names}
    every = list(walks.values())
    turns = _TURNS.get
    for event in events:
        kind = type(event)
        turn = turns(kind)
        touched = None if _NAMES.get(kind) is False else event.touches()
        if touched is None:
            met = every
        else:
            names = touched if len(touched) < 2 else dict.fromkeys(touched)
            met = [walks[name] for name in names if name in walks]
            for walk in met:
                if kind is Created:
                    walk.recreate()
                walk.named = True
        for walk in met:
            walk.events.append(event)
            if turn is not None:
                turn(walk, event)
    for walk in walks.values():
        if walk.events:
            walk.close(None)
    return {name: tuple(walk.records) for name, walk in walks.items()}


class _Walk:
    """The state of one pass over the events of one optimizer."""

    def __init__(self, optimizer: str) -> None:
        self.optimizer = optimizer
        self.records: list[WindowRecord] = []
        self.events: list[Event] = []
        self.named = False  # the open window has an event that names the optimizer
        # Backwards of earlier windows still in `.grad` when this one opened.
        self.pending: int | None = 0
        # Loaders that gave whole batches to the latest backward. Those of a validation loader must
        # not count, or its end would look like the end of a training epoch.
        self.fed: set[str | None] = set()
        self.drawn: set[str | None] = set()  # since that backward
        # Backwards since the last clear: place in `events` -> the loaders that fed it.
        self.waiting: dict[int, set[str | None]] = {}
        self.leftover = 0
        # What a record would find by going through its events again.
        self.since = 0  # the place in `events` after the last clear
        self.kept = 0  # backwards from there on
        self.certain = True  # all events are known
        self.known = True  # those after the last clear are

    def recreate(self) -> None:
        if self.named:
            self.close("recreated")
            # Another optimizer, but perhaps over the same parameters and their gradients.
            self.pending = 0 if self.pending == 0 else None

    def draw(self, event: Drawn) -> None:
        if event.of is None:
            self.drawn.add(event.loader)

    def fill(self, event: Backward) -> None:
        self.kept += 1
        if event.optimizers is None:
            self.lose()
        # No draw since the last backward: a second loss on the same batch.
        self.fed, self.drawn = self.drawn or self.fed, set()
        self.waiting[len(self.events) - 1] = self.fed

    def clear(self, event: Zero) -> None:
        if clears(event):
            self.waiting.clear()
            self.empty()
        else:
            self.lose()

    def edit(self, event: GradEdited) -> None:
        if event.factor is None:
            self.lose()

    def hide(self, _event: Opaque) -> None:
        self.lose()

    def step(self, event: Step) -> None:
        if event.optimizer is None:
            self.lose()
        self.close("step")

    def discard(self, _event: WindowDiscarded) -> None:
        self.empty()
        self.close("discarded")

    def lose(self) -> None:
        """Go on without knowing what is in the gradients."""
        self.certain = self.known = False

    def empty(self) -> None:
        """Go on with nothing in the gradients."""
        self.since, self.kept, self.known = len(self.events), 0, True

    def end_epoch(self, event: EpochEnd) -> None:
        if event.of is not None:
            return
        loader = event.loader
        # Where nothing is drawn at all, the end of an epoch can only be that of the loop.
        left = {
            at for at, fed in self.waiting.items() if not fed or loader is None or loader in fed
        }
        if left and not self.leftover:
            kept = (e for at, e in enumerate(self.events) if at in left or isinstance(e, Drawn))
            self.leftover = count_micro_batches(kept)
        self.drawn.discard(loader)

    def close(self, closed_by: Closing) -> None:
        record = WindowRecord(
            optimizer=self.optimizer,
            index=len(self.records),
            events=tuple(self.events),
            closed_by=closed_by,
            pending=self.pending,
            leftover=self.leftover,
        )
        self.records.append(told(record, certain=self.certain, since=self.since))
        self.pending = self.passed_on()
        self.events, self.named, self.leftover = [], False, 0
        self.since, self.kept, self.certain, self.known = 0, 0, True, True
        self.waiting.clear()

    def passed_on(self) -> int | None:
        """Return the backwards in `.grad` at the close, as the record does; None if not known."""
        carried = 0 if self.since else self.pending
        return carried + self.kept if carried is not None and self.known else None


# What changes more in a walk than the events of its open window.
_TURNS: dict[type[Event], Callable[[_Walk, Any], None]] = {
    Backward: _Walk.fill,
    Drawn: _Walk.draw,
    EpochEnd: _Walk.end_epoch,
    GradEdited: _Walk.edit,
    Opaque: _Walk.hide,
    Step: _Walk.step,
    WindowDiscarded: _Walk.discard,
    Zero: _Walk.clear,
}
