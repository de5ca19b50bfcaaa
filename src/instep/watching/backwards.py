"""Backward: a loss is read before it, and what it added to is told after it.

A line that does the same as the time before is told by the same event, without asking everybody
who took part in making it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from instep.trace import Backward, here
from instep.watching import graph

if TYPE_CHECKING:
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
_COMPARED = 64
"""Backwards of one line whose parameters are compared: heads come one after the other."""
_OURS = 2
"""Frames of the watcher between a backward and what is told of it."""

_Before = tuple[graph.Reading, str | None]
_UNREAD: _Before = (graph.Reading(None), None)


@dataclass(slots=True)
class _Told:
    """The latest backward of a line."""

    place: Place | None
    touched: Touched
    read: _Before
    loss: str
    ragged: bool
    event: Event
    names: tuple[str, ...]
    """Of the optimizers whose gradients it added to; "": some are of none."""
    once: dict[tuple[tuple[int, ...], Place | None], int]
    """What is counted of it: to copy this takes less time than to look its keys up."""

    def is_again(self, touched: Touched, reading: graph.Reading, scaler: str | None) -> bool:
        """Say whether another one at the same line is the same but for its number of items."""
        was, scaled_by = self.read
        return (
            self.touched is touched
            and scaled_by == scaler
            and was.parts == reading.parts
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
        self._compared = 0
        self.added = False
        """One has, since the latest step or clear."""
        self._latest: dict[int, _Told] = {}  # by the id of the line's place

    def forget(self) -> None:
        """Ask everybody anew: somebody has died, and another one has his name."""
        self._latest.clear()

    def window_closed(self) -> None:
        """Take note of a step or a clear."""
        self.added = False
        self._recorder.losses.window_closed()

    def before(self, root: Any) -> _Before | None:
        """Read a loss before its graph is freed."""
        recorder = self._recorder
        recorder.noticed(goes_back=True)
        if recorder.uncleared.follows:
            recorder.uncleared.before_backward()
        node = root.grad_fn if isinstance(root, torch.Tensor) else None
        if node is None:
            return None
        scaler, loss = None, root
        if recorder.scaled:
            marked = recorder.scaled.get(id(root))
            if marked is not None and marked[0]() is root:
                _, scaler, loss = marked
        if self.added:
            self._closely = _CLOSELY
        self._closely = left = self._closely - 1
        reading = graph.read_from(node, scaled=scaler is not None, closely=left >= 0)
        if recorder.sampler.looks:
            recorder.sampler.before_backward(root, loss, reading.factor)
        return reading, scaler

    def after(self, root: Any, before: _Before | None) -> None:
        """Tell of gradients that were added."""
        growing = self._grown
        if not growing:
            return
        grown = tuple(growing)
        growing.clear()
        recorder = self._recorder
        touched = recorder.book.touched(tuple(map(id, grown)), grown)
        if not touched.optimizers and not touched.foreign:
            return  # all of it is of optimizers that are not watched
        self.added = True
        recorder.witnesses.added(touched)
        place = here(recorder.skip, _OURS)
        if recorder.uncleared.follows:
            recorder.uncleared.after_backward(touched, place)
        before = before or _UNREAD
        told = self._latest.get(id(place))
        if told is not None and told.place is place and self._is_again(told, touched, before):
            recorder.tell(told.event)
        else:
            told = self._tell(root, place, touched, *before)
        sinces, fresh = recorder.since, recorder.fresh
        for name in told.names:
            since = sinces.get(name)
            if since is None:
                sinces[name] = told.once.copy()
            else:
                key = (touched.keys if len(since) < _MOST_SINCE else (), place)
                since[key] = since.get(key, 0) + 1
            fresh[name] += 1
        sampler = recorder.sampler
        if sampler.looks or sampler.quiet is not touched or sampler.ranks.pending:
            sampler.after_backward(touched, place)

    def _is_again(self, told: _Told, touched: Touched, before: _Before) -> bool:
        """Say whether a backward is the same as the latest one of its line."""
        reading, scaler = before
        items = reading.items
        if items is None and told.read == before:
            return told.touched is touched
        if not told.is_again(touched, reading, scaler):
            return False
        losses = self._recorder.losses
        if told.ragged:  # its worst is looked for in one window, and then it is believed
            if losses.is_spreading(told.loss):
                losses.differs(told.loss, items, told.place)
            return True
        return not losses.differs(told.loss, items, told.place)

    def _tell(
        self,
        root: Any,
        place: Place | None,
        touched: Touched,
        reading: graph.Reading,
        scaler: str | None,
    ) -> _Told:
        """Tell of a backward that is not the same as the latest of its line."""
        recorder = self._recorder
        recorder.introduce(touched)
        losses = recorder.losses
        loss = losses.introduce(root, reading, place)
        if self._compared < _COMPARED and self._is_another_head(touched, place):
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
        known = reading._replace(items=None)
        ragged = losses.is_ragged(loss)
        once = {(touched.keys, place): 1}
        told = _Told(place, touched, (known, scaler), loss, ragged, event, names, once)
        self._latest[id(place)] = told
        return told

    def _is_another_head(self, touched: Touched, place: Place | None) -> bool:
        """Say whether a line has gone, since the last clear, into other parameters than now.

        Micro-batches all go the same way; each of several heads has parameters of its own.
        """
        ways = [
            {*keys}
            for name in touched.optimizers
            for keys, where in self._recorder.since.get(name, ())
            if where is place and keys is not touched.keys
        ]
        self._compared += bool(ways)
        own = {*touched.keys}
        return any(own - way and way - own for way in ways)
