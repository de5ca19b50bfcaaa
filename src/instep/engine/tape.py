"""The tape: records micro-steps as CUDA graphs, and holds what all recordings share.

They share memory (replays come one after the other), a stream of their own, and the table that
losses and counts are written to, so that nothing is read back between micro-batches.
"""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.engine.abreast import Streams, run_abreast
from instep.engine.autograd import backward
from instep.engine.flat_buffers import FlatBuffers
from instep.engine.function import read_result
from instep.engine.recordings import Recording
from instep.fast.operators import keeping, noting
from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from instep.engine.lane import Lane
    from instep.engine.sources import Source
    from instep.fast.deferral import Stash
    from instep.fast.operators import Firsts

LONGEST = 4096
"""Micro-batches of one window whose losses can be told apart."""


class Unrecordable(Exception):  # noqa: N818 -- caught where recordings are asked for
    """Something that runs, but not as a recording."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is recorded: a function over pieces like this one, adding to a lane."""

    source: Source
    given: Any
    lane: Lane
    loss_fn: Callable[[Any], Any]
    stash: Stash

    @property
    def buffers(self) -> FlatBuffers:
        """The gradients it adds to."""
        buffers = self.lane.buffers
        assert isinstance(buffers, FlatBuffers)  # noqa: S101 -- only flat lanes are captured
        return buffers

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return next(tensors(self.source.piece(self.given).value)).device


class Tape:
    """What recordings are made with."""

    def __init__(self) -> None:
        self.used = 0
        """Micro-steps of this window that were replayed."""
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None
        self._streams: Streams | None = None
        self._rows = torch.empty(0)
        self._place = torch.empty(0)
        self._next = torch.empty(0)
        self._cells: list[tuple[Tensor, ...]] = []

    @contextlib.contextmanager
    def aside(self, device: torch.device) -> Iterator[None]:
        """Work on a stream of our own, as recordings must; the caller's waits for it at the end.

        From the first backward on: torch remembers on which stream a gradient is accumulated.
        """
        if device.type != "cuda":
            yield
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        outer = torch.cuda.current_stream(device)
        self._stream.wait_stream(outer)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            outer.wait_stream(self._stream)

    def rewind(self) -> None:
        """Write losses from the beginning again; before the first replay of a window."""
        self._place.zero_()

    def next_cell(self) -> tuple[Tensor, ...]:
        """Return where the next micro-step writes its loss and its count."""
        if self.used == len(self._cells):
            self._cells.append(self._rows[self.used].unbind())
        self.used += 1
        return self._cells[self.used - 1]

    def record(self, work: Work, places: range, firsts: Firsts) -> Recording:
        """Record these micro-steps of a round, side by side if there are several."""
        device = work.device
        if self._pool is None:
            self._prepare(device)
        inputs = work.source.inputs(work.given, len(places))
        recording = Recording(inputs, device, len(places))
        buffers = work.buffers
        torch.cuda.synchronize(device)
        before = buffers.reached
        buffers.forget_reached()
        buffers.begin()
        try:
            with (
                uncached(),
                noting(firsts),
                torch.cuda.graph(recording.graph, pool=self._pool, stream=self._stream),
            ):
                self._micro_steps(recording, work, places)
        finally:
            buffers.end(added=True)
        recording.reached = buffers.reached
        recording.touches = frozenset(firsts.touched)
        recording.writes = frozenset(firsts.written)
        buffers.reach(before)
        return recording

    def _prepare(self, device: torch.device) -> None:
        self._rows = torch.zeros(LONGEST, 2, dtype=torch.float64, device=device)
        self._place = torch.zeros(1, dtype=torch.long, device=device)
        self._next = torch.arange(LONGEST, device=device)
        self._pool = torch.cuda.graph_pool_handle()
        self._streams = Streams(device)

    def _micro_steps(self, recording: Recording, work: Work, places: range) -> None:
        assert self._streams is not None  # noqa: S101 -- prepared
        inputs = recording.inputs
        # Held until all branches are over: what one of them reads must not be anybody's memory.
        values = [inputs.take(index) for index in range(len(places))]
        steps = [
            partial(_micro_step, recording, work, value, place)
            for value, place in zip(values, places, strict=True)
        ]
        rows = run_abreast(steps, work.buffers, self._streams)
        index = self._place + self._next[: len(rows)]
        self._rows.index_copy_(0, index, torch.stack(rows))
        self._place += len(rows)
        inputs.advance()


def _micro_step(recording: Recording, work: Work, value: Any, place: int) -> Tensor:
    """Run one micro-step; return its loss and its count."""
    piece = work.source.piece(work.given)
    work.stash.begin(place)
    with keeping(work.stash):
        with piece.around():
            result = work.loss_fn(value)
        loss, items = read_result(result, piece.items, piece.refused)
        if not isinstance(loss, Tensor) or loss.dim():
            what = "a loss of several terms, or that is no scalar, is not recorded."
            raise Unrecordable(what)
        recording.items.append(items)
        count = recording.unit.new_full((), 1.0) * items
        seed = (recording.unit * count).to(loss.dtype)
        adding = work.buffers.account.adding(loss)
        with torch.autocast(loss.device.type, enabled=False), adding:
            backward([loss], [seed], retain_graph=False, inputs=work.lane.reachable())
    work.stash.end()
    return torch.stack([loss.detach().double(), count])


@contextlib.contextmanager
def uncached() -> Iterator[None]:
    """Let autocast cast a weight each time it is used.

    A cast that was cached before would be no part of a recording, and go stale. Pieces that warm up
    run the same way, because a compiled model is compiled anew when this setting changes, and
    compiling cannot be recorded.
    """
    was_cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(was_cached)


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Let nobody's garbage be collected meanwhile: memory that is freed now is waited for by a mark
    in our stream, which would be recorded, and found to be none later ("invalid argument").
    """
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def recover(device: torch.device) -> None:
    """Bring the random generator back after a recording that failed: it still waits for its end."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device=device)
