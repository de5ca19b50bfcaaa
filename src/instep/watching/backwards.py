"""Backward: a loss is read before it, and what it added to is told after it.

A line that does the same as the time before is told by the same event, without asking everybody
who took part in making it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from instep.trace import Backward, here
from instep.trace.place import place_of
from instep.watching import graph

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from instep.trace import Event, Place
    from instep.watching.entries import Touched
    from instep.watching.recorder import Recorder

_MOST_SINCE = 1000
"""Sets of parameters that backwards went into and that are told apart, until they are cleared."""
_MOST_LINES = 1024
_CLOSELY = 512
"""Backwards that are read closely at the beginning, and after each one that was not alone in its
window: how many items a loss has, and whether it compares them, matters where several are summed.
"""
_ALL_COMPARED, _USUAL = 64, 17
"""Of those that are read closely, it is looked for in so many after something new was told whether
they compare their items, and then in about every so many, at distances that are not the same: any
one distance would miss a micro-batch for ever in windows of as many.
"""
_HEADS = 64
"""Backwards of one line whose parameters are compared: heads come one after the other."""
_OURS = 2
"""Frames of the watcher between a backward and what is told of it."""
_TENSORS = torch.Tensor.backward.__code__

_Before = tuple[graph.Reading, str | None, Any]
"""What a loss is, which scaler has scaled it, and its number of items."""
_UNREAD: _Before = (graph.Reading(None), None, None)


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """A line and the parameters that its backward goes into. The same one is one object."""

    keys: tuple[int, ...]
    place: Place | None


@dataclass(slots=True)
class _Told:
    """The latest backward of a line."""

    place: Place | None
    code: CodeType | None
    """Of the line, and where it is in that: known without looking for the place."""
    at: int
    touched: Touched
    reading: graph.Reading
    scaler: str | None
    loss: str
    ragged: bool
    event: Event
    names: tuple[str, ...]
    """Of the optimizers whose gradients it added to; "": some are of none."""
    way: Way

    def is_like(self, reading: graph.Reading) -> bool:
        """Say whether a loss is the same, as far as it was looked at."""
        was = self.reading
        return (
            was.parts == reading.parts
            and was.reduction == reading.reduction
            and was.kind == reading.kind
            and was.masked == reading.masked
            and (was.coupled or not reading.coupled)
        )


class Backwards:
    """Tells of backwards."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._grown = recorder.book.grown
        self._closely = _CLOSELY
        self._again = 0  # backwards since the latest that was told anew
        self._next = _ALL_COMPARED  # of these: the one after which the next is compared
        self._drawn = 1
        self._compared = 0
        self.added = False
        """One has, since the latest step or clear."""
        self._latest: dict[int, _Told] = {}  # by the id of the line's place
        self._told: _Told | None = None  # the latest of all
        self._ways: dict[tuple[tuple[int, ...], Place | None], Way] = {}

    def forget(self) -> None:
        """Ask everybody anew: somebody has died, and another one has his name."""
        self._latest.clear()
        self._told = None

    def window_closed(self) -> None:
        """Take note of a step or a clear."""
        self.added = False
        self._recorder.losses.window_closed()

    def before(self, root: torch.Tensor | None) -> _Before | None:
        """Read a loss before its graph is freed."""
        recorder = self._recorder
        changes = recorder.witnesses.changes(goes_back=True)
        if changes or self._grown:
            recorder.tell_changes(changes)
        if recorder.uncleared.follows:
            recorder.uncleared.before_backward()
        node = None if root is None else root.grad_fn
        if root is None or node is None:
            return None
        scaler, loss = None, root
        if recorder.scaled:
            marked = recorder.scaled.get(id(root))
            if marked is not None and marked[0]() is root:
                _, scaler, loss = marked
        if self.added:
            self._closely = _CLOSELY
        self._closely = left = self._closely - 1
        self._again = again = self._again + 1
        depth = graph.GLANCE
        if left >= 0:
            compares = again <= _ALL_COMPARED or again > self._next
            depth = graph.COMPARE if compares else graph.COUNT
            if again > self._next:
                self._next = again + self._distance()
        reading, items = graph.look(node, scaler is not None, depth)
        if recorder.sampler.looks:
            recorder.sampler.before_backward(root, loss, reading)
        return reading, scaler, items

    def _distance(self) -> int:
        """Return how many are passed over until the next is compared: a number that looks drawn,
        the same in every job, and that takes nothing from the user's generators.
        """
        self._drawn = self._drawn * 1103515245 + 12345 & 0x7FFFFFFF
        return (self._drawn >> 16) % (2 * _USUAL)

    def after(self, root: Any, before: _Before | None) -> None:
        """Tell of gradients that were added."""
        growing = self._grown
        if not growing:
            return
        recorder = self._recorder
        grown = tuple(growing)
        growing.clear()
        keys, touched = tuple(map(id, grown)), recorder.book.latest
        if keys != touched.keys:
            touched = recorder.book.latest = recorder.book.touched(keys, grown)
        if not touched.optimizers and not touched.foreign:
            return  # all of it is of optimizers that are not watched
        self.added = True
        recorder.witnesses.added(touched)
        # `inspect` would read source files.
        frame: FrameType | None = sys._getframe(_OURS)  # noqa: SLF001
        if frame is not None and frame.f_code is _TENSORS:
            frame = frame.f_back
        told = self._told
        if (
            told is None
            or frame is None
            or frame.f_lasti != told.at
            or frame.f_code is not told.code
        ):
            place = here(recorder.skip, start=frame)
            told = self._latest.get(id(place))
        else:  # the same line as the time before
            place = told.place
        if recorder.uncleared.follows:
            recorder.uncleared.after_backward(touched, place)
        reading, scaler, items = before = before or _UNREAD
        if (
            told is not None
            and told.place is place
            and told.touched is touched
            and told.scaler == scaler
            and (told.reading is reading or told.is_like(reading))
            and (items is None or not self._has_others(told, items))
        ):
            recorder.tell(told.event)
        else:
            told = self._tell(root, place, touched, before)
            if frame is not None and place_of(frame) is place:
                told.code, told.at = frame.f_code, frame.f_lasti
        self._told = told
        self._count(told)
        sampler = recorder.sampler
        if sampler.looks or sampler.quiet is not touched or sampler.ranks.pending:
            sampler.after_backward(touched, place)

    def _has_others(self, told: _Told, items: Any) -> bool:
        """Say whether a loss is a mean of more or fewer items, and nobody knows it yet."""
        losses = self._recorder.losses
        if told.ragged:  # its worst is looked for in one window, and then it is believed
            if losses.is_spreading(told.loss):
                losses.differs(told.loss, items, told.place)
            return False
        return losses.differs(told.loss, items, told.place)

    def _count(self, told: _Told) -> None:
        """Count a backward until its gradients are cleared, and until they are used."""
        sinces, fresh, way = self._recorder.since, self._recorder.fresh, told.way
        for name in told.names:
            fresh[name] += 1
            if name not in sinces:
                sinces[name] = {way: 1}
                continue
            since = sinces[name]
            if way not in since:
                other = way if len(since) < _MOST_SINCE else self._way((), told.place)
                since[other] = since.get(other, 0) + 1
            else:
                since[way] += 1

    def _way(self, keys: tuple[int, ...], place: Place | None) -> Way:
        way = self._ways.get((keys, place))
        if way is None:
            if len(self._ways) >= 2 * _MOST_SINCE:
                # What stands for all that are too many is one object, as long as there is room.
                rest = {key: each for key, each in self._ways.items() if not each.keys}
                self._ways = rest if len(rest) < _MOST_SINCE else {}
            way = self._ways[keys, place] = Way(keys, place)
        return way

    def _tell(
        self,
        root: Any,
        place: Place | None,
        touched: Touched,
        before: _Before,
    ) -> _Told:
        """Tell of a backward that is not the same as the latest of its line."""
        recorder = self._recorder
        self._again, self._next = 0, _ALL_COMPARED
        known, scaler, items = before
        reading = known._replace(items=items)
        recorder.introduce(touched)
        losses = recorder.losses
        loss = losses.introduce(root, reading, place)
        if self._compared < _HEADS and self._is_another_head(touched, place):
            recorder.fact(loss, "loss", place, heads=True)
        certain = losses.certain(reading, loss)
        factor, parts = losses.factor(certain, place)
        if touched.is_hooked:  # whatever the hooks of the user's own make of it
            factor, parts = None, ()
        read = (loss, factor, parts, certain.reduction, scaler)
        event = recorder.add(
            ("backward", touched.optimizers, touched.models, place, read),
            lambda: Backward(
                touched.optimizers,
                loss=loss,
                factor=factor,
                parts=parts,
                scaled=scaler is not None,
                reduction=certain.reduction,  # type: ignore[arg-type]
                models=touched.models,
                place=place,
            ),
        )
        names = (*touched.optimizers, *(("",) if touched.foreign else ()))
        if len(self._latest) >= _MOST_LINES:
            self._latest.clear()
        # Without its items: they may be a tensor, and nobody asks for them again.
        ragged, way = losses.is_ragged(loss), self._way(touched.keys, place)
        told = _Told(place, None, 0, touched, known, scaler, loss, ragged, event, names, way)
        self._latest[id(place)] = told
        return told

    def _is_another_head(self, touched: Touched, place: Place | None) -> bool:
        """Say whether a line has gone, since the last clear, into other parameters than now.

        Micro-batches all go the same way; each of several heads has parameters of its own.
        """
        ways = [
            {*way.keys}
            for name in touched.optimizers
            for way in self._recorder.since.get(name, ())
            if way.place is place and way.keys is not touched.keys
        ]
        self._compared += bool(ways)
        own = {*touched.keys}
        return any(own - way and way - own for way in ways)
