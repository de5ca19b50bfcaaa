"""Models: what they are, when they are called, and what is cut out of a batch for them."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module

from instep.trace import Drawn, Forward, Mode, Rebound, here
from instep.trace.place import place_of
from instep.watching.facts import of_model
from instep.watching.pieces import Pieces

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from instep.trace import Event, Fact, Place
    from instep.watching.recorder import Recorder


_IN_A_CALL = 2
"""Frames of the watcher between torch's own in the call of a model and what tells of it."""
_CALLED = _IN_A_CALL + 2
_CALL = Module._wrapped_call_impl.__code__  # noqa: SLF001  # what a model's `__call__` is
_MOST_LINES = 1024
_SYNC = "require_backward_grad_sync"


@dataclass(slots=True)
class _Told:
    """The latest call of a line."""

    id_: str
    place: Place | None
    code: CodeType | None
    """Of the line, and where it is in that: known without looking for the place."""
    at: int
    whose: weakref.ref[Any]
    training: bool
    sync: Any
    event: Event
    stateful: bool


class Models:
    """Tells of models."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pieces = Pieces()
        self._latest: dict[int, _Told] = {}  # by the id of the line's place
        self._told: _Told | None = None  # the latest of all

    def forward(self, model: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell of a call of a model, where gradients are on."""
        if not torch.is_grad_enabled():
            return
        # Three frames of torch's own lie in between, always the same: none of them is asked for.
        frame = sys._getframe(_CALLED)  # noqa: SLF001  # `inspect` would read source files
        start = frame.f_back if frame.f_code is _CALL else None
        told = self._told
        if (
            told is None
            or start is None
            or start.f_lasti != told.at
            or start.f_code is not told.code
        ):
            place = here(self._recorder.skip, _IN_A_CALL, start=start)
            told = self._latest.get(id(place))
        else:  # the same line as the time before
            place = told.place
        own = model.__dict__  # a module without what is looked up looks long
        sync = own[_SYNC] if _SYNC in own else None  # noqa: SIM401  # without a call
        if (
            told is None
            or told.place is not place
            or told.whose() is not model
            or told.training is not model.training
            or told.sync is not sync
        ):
            told = self._meet(model, place, start, sync)
            if told is None:
                return
        self._told = told
        if sync is not None:
            self._recorder.sampler.ranks.forward(told.id_, model, sync=sync)
        if self._pieces.has_batch and len(args) == 1 and not kwargs and not told.stateful:
            self._cut(args[0], place)
        self._recorder.tell(told.event)

    def _meet(
        self, model: Module, place: Place | None, start: FrameType | None, sync: Any
    ) -> _Told | None:
        """Make what is told of a call that is not the same as the latest of its line."""
        recorder = self._recorder
        id_ = recorder.book.model_of(model)
        if id_ is None:
            return None
        if id_ not in recorder.facts:
            self.introduce(id_, model)
        training = model.training
        event = recorder.made(
            ("forward", id_, place, training, sync),
            lambda: Forward(id_, training=training, sync=sync, place=place),
        )
        stateful = bool(recorder.facts[id_].get("stateful"))
        if len(self._latest) >= _MOST_LINES:
            self._latest.clear()
        code, at = None, 0
        if start is not None and place_of(start) is place:
            code, at = start.f_code, start.f_lasti
        told = _Told(id_, place, code, at, weakref.ref(model), training, sync, event, stateful)
        self._latest[id(place)] = told
        return told

    def mode(self, model: Module, *, training: bool) -> None:
        """Tell of a model that is set to train or to eval."""
        recorder = self._recorder
        id_ = recorder.book.model_of(model)
        if id_ is None:
            return
        place = recorder.place()
        self.introduce(id_, model)
        recorder.add(
            ("mode", id_, place, training), lambda: Mode(id_, training=training, place=place)
        )

    def introduce(self, id_: str, model: Module) -> None:
        """Say what a model is, once."""
        if id_ in self._recorder.facts:
            return
        self._recorder.fact(id_, "model", None, **of_model(model))

    def rebound(self, name: str, was: str | None, now: str | None) -> None:
        """Tell of a part of a model that was replaced."""
        place = self._recorder.place()
        self._recorder.add(
            ("rebound", name, place),
            lambda: Rebound(name, was=was, now=now, parameters=True, place=place),
        )

    # Pieces of a batch

    def batch(self, loader: str, batch: Any) -> None:
        """Take note of a new batch."""
        self._pieces.batch(loader, batch)

    def _cut(self, given: Any, place: Place | None) -> None:
        loader = self._pieces.loader_of(given, place)
        if loader is None:
            if self._pieces.cut is not None:
                self._recorder.fact(self._pieces.cut, "loader", cut=True)
                self._pieces.cut = None
            return
        id_ = f"patches of {loader}"
        tiled: dict[str, Fact] = {"tiled": True} if loader in self._pieces.tiled else {}
        self._recorder.fact(id_, "loader", place, type="patches", patches=True, **tiled)
        self._recorder.add(("piece", id_, place), lambda: Drawn(id_, of=loader, place=place))
