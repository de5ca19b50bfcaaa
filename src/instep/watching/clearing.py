"""Clears: whose gradients are gone, and where that was asked for."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from instep.trace import Zero, here
from instep.trace.place import Nearest

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from instep.trace import Event, Place
    from instep.watching.entries import Covered
    from instep.watching.recorder import Recorder

_TORCH = (str(Path(torch.__file__).parent) + "/",)
_BY_OPTIMIZER, _BY_MODEL = 2, 3
"""Frames of the watcher between a clear and what tells of it."""
_MOST_LINES = 1024


@dataclass(slots=True)
class _Told:
    """The latest clear of a line, if it was one event."""

    place: Place | None
    whose: weakref.ref[Any]
    set_to_none: bool
    changes: int
    """Of the book until then."""
    event: Event
    names: tuple[str, ...]


class Clearing:
    """Tells of gradients that are cleared."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._latest: dict[int, _Told] = {}  # by the id of the line's place
        self._at = Nearest(recorder.skip)

    def forget(self) -> None:
        """Ask everybody anew: somebody has died, and another one has his name."""
        self._latest.clear()

    def by_optimizer(self, optimizer: Optimizer, *, set_to_none: bool) -> None:
        """Tell of gradients that an optimizer cleared."""
        recorder = self._recorder
        book = recorder.book
        place = self._at(sys._getframe(_BY_OPTIMIZER))  # noqa: SLF001
        told = self._latest.get(id(place))
        if (
            told is not None
            and told.place is place
            and told.whose() is optimizer
            and told.set_to_none is set_to_none
            and told.changes == book.changes
            and not recorder.is_going_back
        ):
            for name in told.names:
                self._cleared(name)
            recorder.tell(told.event)
            return
        recorder.optimizer(optimizer)
        groups = optimizer.param_groups
        covered = book.covered(
            (id(optimizer),), lambda: (p for group in groups for p in group["params"])
        )
        events = self._tell(covered, None, place, set_to_none=set_to_none)
        if len(events) == 1:
            if len(self._latest) >= _MOST_LINES:
                self._latest.clear()
            names = covered.whole or covered.partly
            self._latest[id(place)] = _Told(
                place, weakref.ref(optimizer), set_to_none, book.changes, events[0], names
            )

    def by_model(self, model: Module, *, set_to_none: bool) -> None:
        """Tell of gradients that a model cleared."""
        book = self._recorder.book
        parameters = list(model.parameters())
        covered = book.covered(tuple(map(id, parameters)), lambda: parameters)
        for name in covered.partly:
            self._recorder.uncleared.cleared(name)
        self._cleared("")
        place, target = here(self._recorder.skip, _BY_MODEL), book.model_of(model)
        if target is not None and here(_TORCH) is not place:
            place = None  # a framework did it by itself: no line of the user's would change that
        self._tell(covered, target, place, set_to_none=set_to_none)

    def _tell(
        self, covered: Covered, target: str | None, place: Place | None, *, set_to_none: bool
    ) -> list[Event]:
        """Tell of gradients that were cleared, to every optimizer that holds any of them."""
        events = []
        for names, complete in ((covered.whole, True), (covered.partly, False)):
            if not names:
                continue
            for name in names:
                self._cleared(name)
            if not self._recorder.is_within(names, "zero_grad"):
                event = self._recorder.add(
                    ("zero", names, target, place, set_to_none, complete),
                    lambda names=names, complete=complete: Zero(  # type: ignore[misc]
                        names,
                        target=target,
                        set_to_none=set_to_none,
                        complete=complete,
                        place=place,
                    ),
                )
                events.append(event)
        return events

    def _cleared(self, optimizer: str) -> None:
        recorder = self._recorder
        recorder.witnesses.cleared(optimizer)
        if recorder.backwards.added:
            recorder.backwards.window_closed()  # it is in no window with what follows
        recorder.clears[optimizer] += 1
        recorder.since.pop(optimizer, None)
