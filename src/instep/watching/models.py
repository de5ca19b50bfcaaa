"""Models: what they are, when they are called, and what is cut out of a batch for them."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.nn import Module

from instep.trace import Drawn, Forward, Mode, Rebound, here
from instep.watching.facts import of_model

if TYPE_CHECKING:
    from torch import Tensor

    from instep.trace import Event, Fact, Place
    from instep.watching.recorder import Recorder


_IN_A_CALL = 2
"""Frames of the watcher between torch's own in the call of a model and what tells of it."""
_CALLED = _IN_A_CALL + 2
_CALL = Module._wrapped_call_impl.__code__  # noqa: SLF001  # what a model's `__call__` is
_MOST_LINES = 1024
_MOST_TILES, _LOOKS = 64, 32
_Shape: TypeAlias = "tuple[int, ...]"
_IMAGE = 4
"""Dimensions of a batch of images, at least: samples, channels and two of space."""


@dataclass(slots=True)
class _Told:
    """The latest call of a line."""

    id_: str
    place: Place | None
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

    def forward(self, model: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell of a call of a model, where gradients are on."""
        if not torch.is_grad_enabled():
            return
        # Three frames of torch's own lie in between, always the same: none of them is asked for.
        frame = sys._getframe(_CALLED)  # noqa: SLF001  # `inspect` would read source files
        start = frame.f_back if frame.f_code is _CALL else None
        place = here(self._recorder.skip, _IN_A_CALL, start=start)
        told = self._latest.get(id(place))
        sync = vars(model).get("require_backward_grad_sync")  # a module without it looks long
        if (
            told is None
            or told.place is not place
            or told.whose() is not model
            or told.training is not model.training
            or told.sync is not sync
        ):
            told = self._meet(model, place, sync)
            if told is None:
                return
        if sync is not None:
            self._recorder.sampler.ranks.forward(told.id_, model, sync=sync)
        if self._pieces.has_batch and len(args) == 1 and not kwargs and not told.stateful:
            self._cut(args[0], place)
        self._recorder.tell(told.event)

    def _meet(self, model: Module, place: Place | None, sync: Any) -> _Told | None:
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
        told = _Told(id_, place, weakref.ref(model), training, sync, event, stateful)
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

    def batch(self, loader: str) -> None:
        """Take note of a new batch."""
        self._pieces.batch(loader)

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


class Pieces:
    """Recognises the patches of a batch: views that leave out a part of every sample.

    A call is known as one of a patch when the same line was given two different parts of one
    batch. Parts along the first dimension are smaller batches: to train on them may well be meant,
    so it is only noted that there are some.
    """

    def __init__(self) -> None:
        self._loader: str | None = None
        self.has_batch = False
        """Some loader has given one."""
        self.cut: str | None = None
        """A loader whose batches were just seen cut along their first dimension."""
        self._looks = 0  # at batches, for patches that are all of them
        self.tiled: set[str] = set()
        """Loaders whose images were seen cut into patches that are together the whole image."""
        # By what was cut and where: the shapes of its parts, by where they begin.
        self._parts: dict[tuple[int, Place | None], tuple[Any, dict[int, _Shape]]] = {}
        self._cutting: set[Place | None] = set()

    def batch(self, loader: str) -> None:
        """Forget the parts of the batch before."""
        self._loader = loader
        self.has_batch = True
        self._parts.clear()

    def loader_of(self, given: Any, place: Place | None) -> str | None:
        """Return the loader whose batch this is a patch of; None if it is none."""
        if self._loader is None or not isinstance(given, torch.Tensor):
            return None
        whole = given._base  # noqa: SLF001  # there is no public name for what a view is of
        if whole is None or given.dim() != whole.dim() or given.shape == whole.shape:
            return None
        key = (id(whole), place)
        known = self._parts.get(key)
        if known is None or known[0]() is not whole:
            known = self._parts[key] = (weakref.ref(whole), {})
        known[1][int(given.storage_offset())] = given.shape
        if not _is_patch(given, whole):
            is_cut = len(known[1]) > 1 and given.shape[1:] == whole.shape[1:]
            self.cut = self._loader if is_cut else None
            return None
        if len(known[1]) > 1:
            self._looks += len(known[1]) == 2  # once for each batch
            self._cutting.add(place)
            if (
                self._looks < _LOOKS
                and self._loader not in self.tiled
                and _are_tiles(known[1], whole)
            ):
                self.tiled.add(self._loader)
        return self._loader if place in self._cutting else None


def _is_patch(given: Tensor, whole: Tensor) -> bool:
    return (
        given.dim() == whole.dim() > 1
        and given.shape[0] == whole.shape[0]
        and given.shape != whole.shape
    )


def _are_tiles(parts: dict[int, _Shape], whole: Tensor) -> bool:
    """Say whether parts that begin at these places are together a whole image, and none twice.

    They are to be cut out of space: not out of channels, nor out of a sequence.
    """
    if whole.dim() < _IMAGE or len(parts) > _MOST_TILES:
        return False
    if any(shape[:2] != whole.shape[:2] for shape in parts.values()):
        return False
    if sum(map(prod, parts.values())) != whole.numel() or not whole.is_contiguous():
        return False
    boxes = []
    for offset, shape in parts.items():
        starts, left = [], offset - int(whole.storage_offset())
        for stride in whole.stride():
            start, left = divmod(left, stride)
            starts.append(start)
        boxes.append([(at, at + size) for at, size in zip(starts, shape, strict=True)])
    return not any(
        all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True))
        for one, other in combinations(boxes, 2)
    )
