"""What happens in a job, told as events. One happening is one object, however often it happens."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from instep.trace import (
    WEIGHTS_MOVED,
    Called,
    Clip,
    Created,
    GradEdited,
    Opaque,
    ScalerUpdate,
    Schedule,
    Step,
    Unscale,
    Zero,
    here,
)
from instep.trace.place import Nearest
from instep.watching.backwards import Backwards
from instep.watching.clearing import Clearing
from instep.watching.facts import Few
from instep.watching.feeds import Feeds
from instep.watching.horizons import is_outlived
from instep.watching.losses import Losses
from instep.watching.models import Models
from instep.watching.series import MOST_OPENED
from instep.watching.threads import Tally
from instep.watching.uncleared import Uncleared
from instep.watching.unseen import GRADIENTS_MOVED
from instep.watching.witness import Witnesses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from torch.nn import Parameter
    from torch.optim import Optimizer

    from instep.trace import Event, Fact, Place
    from instep.watching.backwards import Way
    from instep.watching.book import Book
    from instep.watching.entries import Touched
    from instep.watching.samples import Sampler
    from instep.watching.series import Series
    from instep.watching.stream import Stream

_MOST_LINES = 1024

_Step: TypeAlias = "tuple[str, Place | None, str | None, Any, bool]"
"""Whose, where, by which scaler, why it was skipped, whether it had a closure."""


class Recorder:
    """Takes what the seams see and adds it to the stream."""

    def __init__(self, book: Book, stream: Stream, series: Series, sampler: Sampler) -> None:
        self.book = book
        self.skip = book.skip
        self._grown = book.grown
        self.stream = stream
        self._add = stream.add
        self.series = series
        self._opened = series.opened
        self.sampler = sampler
        self.witnesses = Witnesses(book.is_blank)
        self.uncleared = Uncleared(book, sampler.gauges)
        self.models = Models(self)
        self.turned: Callable[[bool], None] = lambda _: None
        """Called after every step, with whether it brought something new."""
        self._events: dict[tuple[Any, ...], Event] = {}
        self._steps: dict[int, tuple[_Step, Event]] = {}  # the latest, by the id of its place
        self.facts: dict[str, dict[str, Fact]] = {}
        """By id: what was told of it."""
        self.losses = Losses(self)
        self.backwards = Backwards(self)
        self.clearing = Clearing(self)
        self.feeds = Feeds(self)
        self._introduced: Touched | None = None  # the latest
        self._known: dict[int, tuple[weakref.ref[Any], str]] = {}  # optimizers that were introduced
        self.since: dict[str, dict[Way, int]] = {}
        """Backwards since the gradients were last cleared: by optimizer, what they touched and
        where; under "" those of parameters that no optimizer holds."""
        self.fresh: Counter[str] = Counter()
        """Backwards since the last step, by optimizer."""
        self.clears: Counter[str] = Counter()
        self.is_going_back = False
        """A backward is running."""
        self.elsewhere = Tally()  # updates that were made in threads that are not watched
        self.processes = 0
        """That the job has started by itself."""
        self.few = Few()
        self._steps_at, self._clips_at = Nearest(book.skip), Nearest(book.skip)
        self._held: tuple[tuple[int, ...], int] = ((), 0)  # parameters that were clipped, and when
        self._holders: tuple[str, ...] = ()  # whose they are
        self._clip: tuple[Any, ...] = ()  # the latest
        self._clip_event: Event | None = None
        book.passed_on = self.passed_on
        self.scaled: dict[int, Any] = {}  # by id, what a scaler has scaled, which, and from what

    def place(self) -> Place | None:
        """Return the user's line."""
        return here(self.skip)

    def passed_on(self, id_: str) -> None:
        """Forget what was told of something that has died: another one has its name now."""
        self.facts.pop(id_, None)
        self.since.pop(id_, None)
        self.feeds.forget(id_)
        self.fresh.pop(id_, None)
        self.clears.pop(id_, None)
        self._introduced = None
        self._known.clear()
        self.backwards.forget()
        self.clearing.forget()
        self.witnesses.forget(id_)
        self.uncleared.forget(id_)
        self.sampler.forget(id_)

    def add(self, key: tuple[Any, ...], make: Callable[[], Event]) -> Event:
        """Tell an event: the one of this key, which is made the first time."""
        event = self.made(key, make)
        self.tell(event)
        return event

    def made(self, key: tuple[Any, ...], make: Callable[[], Event]) -> Event:
        """Return the event of a key, which is made the first time."""
        event = self._events.get(key)
        if event is None:
            event = self._events[key] = make()
        return event

    def tell(self, event: Event) -> None:
        """Tell an event of ours, once more."""
        if self.feeds.ending:
            self.feeds.settle()
        self._add(event)
        opened = self._opened
        opened.append((perf_counter(), event))  # as `series.moment` does it
        if len(opened) >= MOST_OPENED:
            self.series.sort()

    def fact(self, id_: str, role: Any, place: Place | None = None, **facts: Fact) -> None:
        """Say what is known about something; only what is new is told."""
        known = self.facts.get(id_)
        if known is not None and all(known.get(name) == fact for name, fact in facts.items()):
            return
        merged = {**(known or {}), **facts}
        self.facts[id_] = merged
        self.add(
            ("created", id_, place, tuple(sorted(merged.items(), key=str))),
            lambda: Created(id_, role, merged, place=place),
        )

    # Optimizers

    def optimizer(self, optimizer: Optimizer) -> str:
        """Return the id of an optimizer, and introduce it the first time."""
        known = self._known.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return known[1]
        id_ = self._met(optimizer)
        if len(self._known) >= _MOST_LINES:
            self._known.clear()
        self._known[id(optimizer)] = (weakref.ref(optimizer), id_)
        return id_

    def _met(self, optimizer: Optimizer) -> str:
        met = self.book.met(optimizer)
        if met is not None and met in self.facts:
            return met
        optimizer = self.book.core(optimizer)
        if not self.book.knows(optimizer):
            groups = optimizer.param_groups
            self.book.take_group(optimizer, [p for g in groups for p in g["params"]], None)
        id_ = self.book.optimizer_name(optimizer)
        if id_ not in self.facts:
            self._introduce_optimizer(id_, optimizer)
        return id_

    def regrouped(self, optimizer: Optimizer) -> None:
        """Tell of an optimizer that was given more, if it was told of before."""
        if self.book.met(optimizer) is not None:
            id_ = self.book.optimizer_name(optimizer)
            if id_ in self.facts:
                self._introduce_optimizer(id_, optimizer)

    def _introduce_optimizer(self, id_: str, optimizer: Optimizer) -> None:
        held = self.book.of_optimizer(optimizer)
        for each in held:
            each.is_trained = True
        models = tuple(dict.fromkeys(h.model for h in held if h.model is not None))
        for model in models:
            found = self.book.models.get(model)
            if found is not None and found() is not None:
                self.models.introduce(model, found())
        self.witnesses.keep(self.book.alive())
        if held:
            self.witnesses.meet(id_, held[0].weak)
        made = self.book.optimizers[id(optimizer)]
        kind, groups = type(optimizer).__name__, len(optimizer.param_groups)
        inherits = made.inherits is not None and made.inherits.is_added_to()
        facts: dict[str, Fact] = {"inherits": True} if inherits else {}
        if made.filled and not inherits:
            facts["filled"] = True
        facts |= {"type": kind, "models": models, "groups": groups, "written": True}
        self.fact(id_, "optimizer", made.place, **facts)
        if made.filled:
            made.filled = False
            if inherits:
                return
            self.add(("edited", id_), lambda: GradEdited((id_,)))

    def is_within(self, optimizers: tuple[str, ...], what: str) -> bool:
        """Say whether this happens in the middle of a backward: then windows cannot be told."""
        if self.is_going_back:
            self.opaque(optimizers, f"{what} in a backward")
        return self.is_going_back

    def noticed(self, *, goes_back: bool = False) -> None:
        """Tell what was done to gradients since the last event, by hand or out of sight."""
        changes = self.witnesses.changes(goes_back=goes_back)
        if changes or self._grown:
            self.tell_changes(changes)

    def tell_changes(self, changes: Sequence[tuple[str, str]]) -> None:
        """Tell what the witnesses have noticed."""
        if self._grown:
            # A backward that nobody has told of.
            grown = tuple(self.book.grown)
            self.book.grown.clear()
            touched = self.book.touched(tuple(map(id, grown)), grown)
            if touched.optimizers:
                self.opaque(touched.optimizers, "a backward that is compiled, or not over yet")
        for id_, change in changes:
            if change == "weights":
                self.opaque((id_,), WEIGHTS_MOVED)
            elif change == "moved":
                self.opaque((id_,), GRADIENTS_MOVED)
            elif change == "edited":
                self.add(("edited", id_), lambda id_=id_: GradEdited((id_,)))  # type: ignore[misc]
            else:
                none = change == "none"
                self.book.disinherit()
                self.since.pop(id_, None)
                self.clears[id_] += 1
                self.add(
                    ("by-hand", id_, none),
                    lambda id_=id_, none=none: Zero((id_,), set_to_none=none),  # type: ignore[misc]
                )

    # Gradients

    def introduce(self, touched: Touched) -> None:
        """Introduce optimizers and models that a backward went into, the first time."""
        if touched is self._introduced:
            return
        self._introduced = touched
        if all(name in self.facts for name in (*touched.optimizers, *touched.models)):
            return
        for made in list(self.book.optimizers.values()):
            optimizer = made.weak()
            if optimizer is not None and self.book.optimizer_name(optimizer) in touched.optimizers:
                self.optimizer(optimizer)
        for name in touched.models:
            model = self.book.models.get(name)
            if model is not None and model() is not None:
                self.models.introduce(name, model())

    # Updates

    def clipped(
        self, parameters: Sequence[Parameter], by: Any, limit: float | None, norm: Any
    ) -> None:
        """Tell of gradients that were clipped; who calls this was called by who clips."""
        place = self._clips_at(sys._getframe(1).f_back)  # noqa: SLF001  # None: a thread's first
        which = (tuple(map(id, parameters)), self.book.changes)
        if which != self._held:
            self._held, self._holders = which, self.book.holders(parameters)
        held = self._holders
        self.witnesses.touched(held)
        if self.uncleared.follows:
            self.uncleared.edited(1 if by == "norm" else 2)  # by value: from below and from above
        self.sampler.clipped(norm)
        clip = (held, place, by, limit)
        if clip == self._clip and self._clip_event is not None:
            self.tell(self._clip_event)
            return
        most = self.few("limit", place, limit)
        self._clip_event = self.add(
            ("clip", held, place, by, most), lambda: Clip(held, by, most, place=place)
        )
        self._clip = clip

    def unscaled(self, optimizer: Optimizer, scaler: str) -> None:
        """Tell of gradients that were divided by the loss scale."""
        place = self.place()
        id_ = self.optimizer(optimizer)
        self.add(("unscale", id_, place, scaler), lambda: Unscale(id_, scaler, place=place))

    def stepped(
        self,
        optimizer: Optimizer,
        *,
        scaler: str | None = None,
        skipped: str | None = None,
        closure: bool = False,
        id_: str | None = None,
        frame: FrameType | None = None,
    ) -> None:
        """Tell of an optimizer that was asked to update.

        `id_` is its own, where it is known, and `frame` is of who has asked, or between him and us.
        """
        place = self.place() if frame is None else self._steps_at(frame)
        id_ = id_ or self.optimizer(optimizer)
        self.witnesses.stepped(id_)
        if self.uncleared.follows:
            self.uncleared.stepped(optimizer, id_)
        self.fresh[id_] = 0
        if self.backwards.added:
            self.backwards.window_closed()
        if self.is_going_back and self.is_within((id_,), "step"):
            self.series.updated(id_, skipped)
            return
        step = (id_, place, scaler, skipped, closure)
        told = self._steps.get(id(place))
        if told is not None and told[0] == step:
            self.tell(told[1])
        else:
            self._tell_step(step)
        updates = self.series.updated(id_, skipped)
        if skipped is None:
            self.sampler.after_step(optimizer, id_, place, updates)
        self.turned(self.stream.turn())

    def _tell_step(self, step: _Step) -> None:
        """Tell of a step that is not the same as the latest of its line."""
        id_, place, scaler, skipped, closure = step
        event = self.add(
            ("step", *step),
            lambda: Step(id_, skipped=skipped, scaler=scaler, closure=closure, place=place),
        )
        if len(self._steps) >= _MOST_LINES:
            self._steps.clear()
        self._steps[id(place)] = (step, event)

    def scaler(self, scaler: Any) -> str:
        """Return the id of a scaler, and introduce it the first time."""
        id_ = self.book.name(scaler, "scaler")
        if id_ not in self.facts:
            kind, enabled = type(scaler).__name__, bool(scaler.is_enabled())
            self.fact(id_, "scaler", None, type=kind, enabled=enabled, written=True)
        return id_

    def scaler_updated(self, scaler: str) -> None:
        """Tell of a scaler that chose its next scale."""
        place = self.place()
        self.add(("scaler", scaler, place), lambda: ScalerUpdate(scaler, place=place))

    def scheduled(self, scheduler: Any, *, explicit: bool) -> None:
        """Tell of a scheduler that was stepped."""
        place = self.place()
        optimizer = getattr(scheduler, "optimizer", None)
        if optimizer is not None and not self.book.scope.holds(optimizer):
            return
        name = None if optimizer is None else self.optimizer(optimizer)
        id_ = self.book.name(scheduler, "scheduler")
        kind = type(scheduler).__name__
        facts: dict[str, Fact] = {"type": kind, "optimizer": name}
        if is_outlived(scheduler, self._lengths()):
            facts["horizon"] = "updates"
        self.fact(id_, "scheduler", None, **facts)
        unit: Any = "metric" if kind == "ReduceLROnPlateau" else None
        self.add(
            ("schedule", id_, place, explicit),
            lambda: Schedule(name, id_, unit, explicit, place=place),
        )

    def _lengths(self) -> set[int]:
        """Return how many batches the loaders have."""
        lengths = (facts.get("length") for facts in self.facts.values())
        return {length for length in lengths if isinstance(length, int)}

    # Others

    def called(self, api: str) -> None:
        """Tell of something that was used under a name that matters in itself."""
        place = self.place()
        self.add(("called", api, place), lambda: Called(api, place=place))

    def opaque(self, optimizers: tuple[str, ...] | None, what: str) -> None:
        """Tell of something that cannot be followed."""
        self.add(("opaque", optimizers, what), lambda: Opaque(optimizers, what))
