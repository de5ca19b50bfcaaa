"""Captured windows: a micro-step is recorded once per shape as a CUDA graph, and then replayed.

A replay is one launch for forward, backward and the sums into `.grad`, with dropout drawing anew.
`torch.compile(mode="reduce-overhead")` cannot accumulate this way: its graphs overwrite what was
not yet added. The first pieces of a shape run as usual, which also warms up what is lazily made;
then one is recorded. What cannot be recorded runs as usual for good, and a warning says why once.
"""

from __future__ import annotations

import contextlib
import types
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.engine.autograd import backward
from instep.engine.declare import LOSS
from instep.engine.flat_buffers import FlatBuffers
from instep.engine.function import read_result
from instep.engine.recordings import Recording, Series
from instep.engine.sources import source_of
from instep.errors import InstepWarning, four_lines
from instep.fast.deferral import Stash, Survey, steps_for
from instep.fast.operators import keeping
from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from instep.engine.lane import Lane
    from instep.engine.sources import Inputs, Source
    from instep.engine.window import Window
    from instep.splits.plan import Piece, Plan

WARM_UP = 3
"""Pieces of a shape that run as usual before one is recorded."""
SHAPES = 8
"""Shapes that are recorded; further ones run as usual."""
LONGEST = 4096
"""Micro-batches of one window whose losses can be told apart."""


class _Unrecordable(Exception):  # noqa: N818 -- caught a few lines below where it is raised
    """Something that runs, but not as a recording."""


class Captures:
    """The recordings of one stepper's function style."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Series | int | None] = {}
        self._surveys: dict[Hashable, Survey] = {}
        # Identities are of living objects only.
        self._held: list[object] = []
        self._functions: set[Hashable] = set()
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None
        self._rows = torch.empty(0)
        self._place = torch.empty(0)
        self._cells: list[tuple[Tensor, ...]] = []
        self._used = 0
        self._begun: set[Series] = set()
        self._ready: frozenset[int] | None = None
        """What the last replay has reached, with nothing else since; backwards weigh `_unit`."""
        self._unit = 0.0
        self._is_told = False

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

    def run(
        self,
        window: Window,
        lane: Lane,
        plan: Plan,
        loss_fn: Callable[[Any], Any],
        *,
        name: str | None,
    ) -> None:
        """Run every piece of a plan through an open window, replaying what is recorded."""
        self._used = 0
        self._ready = None
        self._begun = set()
        source = source_of(plan, self._identity(loss_fn))
        for given in source:
            lane.choose_reference(LOSS, source.items(given))
            key = source.key(given)
            known = None if key is None else self._known.get(key, 0)
            if isinstance(known, int) and known >= WARM_UP:
                known = self._recorded(key, source, given, lane, loss_fn, pieces=len(plan))
            if isinstance(known, Series) and self._used < LONGEST:
                if known not in self._begun:
                    self._begun.add(known)
                    known.begin(source.batch)
                self._replay(known.next(), source.handed(given), window, lane)
                continue
            self._ready = None
            is_new = isinstance(known, int) and (known or len(self._known) < SHAPES)
            piece = source.piece(given)
            with self._warming_up(key) if is_new else contextlib.nullcontext():
                with piece.around():
                    result = loss_fn(piece.value)
                loss, items = read_result(result, piece.items)
                window.backward(loss, items=items, optimizer=name)
        for series in self._begun:
            series.finish()
        lane.buffers.seal()

    @contextlib.contextmanager
    def _warming_up(self, key: Hashable) -> Iterator[None]:
        """Run a piece as it will be recorded, and look at what could be deferred then."""
        survey = self._surveys[key] = Survey()
        with _uncached(), keeping(survey):
            yield
        known = self._known.get(key, 0)
        if isinstance(known, int):
            self._known[key] = known + 1

    def _identity(self, function: Callable[[Any], Any]) -> Hashable:
        """Tell a function that is written anew in each step (a lambda) from another one."""
        if not isinstance(function, types.FunctionType):
            self._held.append(function)
            return id(function)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        inside = [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        key = (function.__code__, *(_value_of(value) for value in inside))
        if key not in self._functions:
            self._functions.add(key)
            self._held.extend(inside)
        return key

    def _recorded(
        self,
        key: Hashable,
        source: Source,
        given: Any,
        lane: Lane,
        loss_fn: Callable[[Any], Any],
        *,
        pieces: int,
    ) -> Series | None:
        stash = Stash(steps_for(self._surveys.pop(key).calls, pieces))
        piece, inputs = source.piece(given), source.inputs(given)
        recordings: list[Recording] = []
        try:
            for step in range(stash.steps):
                stash.begin(step)
                with keeping(stash):
                    recordings.append(self._record(piece, inputs, lane, loss_fn))
                stash.end()
                if recordings[-1].reached == recordings[0].reached:
                    recordings[-1].reached = recordings[0].reached
        except (RuntimeError, _Unrecordable) as error:
            self._known[key] = None
            _recover(next(tensors(piece.value)).device)
            self._tell(error)
            return None
        made = self._known[key] = Series(recordings, stash)
        return made

    def _record(
        self, piece: Piece, inputs: Inputs, lane: Lane, loss_fn: Callable[[Any], Any]
    ) -> Recording:
        device = next(tensors(piece.value)).device
        if self._pool is None:
            self._rows = torch.zeros(LONGEST, 2, dtype=torch.float64, device=device)
            self._place = torch.zeros(1, dtype=torch.long, device=device)
            self._pool = torch.cuda.graph_pool_handle()
        recording = Recording(inputs, device)
        buffers = lane.buffers
        assert isinstance(buffers, FlatBuffers)  # noqa: S101 -- only flat lanes are captured
        torch.cuda.synchronize(device)
        before = buffers.reached
        buffers.forget_reached()
        buffers.begin()
        try:
            with (
                _uncached(),
                torch.cuda.graph(recording.graph, pool=self._pool, stream=self._stream),
            ):
                self._micro_step(recording, piece, lane, loss_fn)
        finally:
            buffers.end(added=True)
        recording.reached = buffers.reached
        buffers.reach(before)
        return recording

    def _micro_step(
        self, recording: Recording, piece: Piece, lane: Lane, loss_fn: Callable[[Any], Any]
    ) -> None:
        with piece.around():
            result = loss_fn(recording.inputs.take())
        loss, items = read_result(result, piece.items)
        if not isinstance(loss, Tensor) or loss.dim():
            what = "a loss of several terms, or that is no scalar, is not recorded."
            raise _Unrecordable(what)
        recording.items = items
        count = recording.unit.new_full((), 1.0) * items
        self._rows.index_copy_(0, self._place, torch.stack([loss.detach().double(), count])[None])
        self._place += 1
        seed = (recording.unit * count).to(loss.dtype)
        with torch.autocast(loss.device.type, enabled=False):
            backward([loss], [seed], retain_graph=False, inputs=lane.reachable())
        recording.inputs.advance()

    def _replay(self, recording: Recording, given: Any, window: Window, lane: Lane) -> None:
        if not self._used:
            self._place.zero_()
        if recording.reached is not self._ready:
            # Nothing of the user's runs between two replays: what is looked at here stays so.
            lane.buffers.require_untouched()
            if isinstance(lane.buffers, FlatBuffers):
                lane.buffers.reach(recording.reached)
            self._unit = lane.unit(LOSS)
            self._ready = recording.reached
        if self._used == len(self._cells):
            self._cells.append(self._rows[self._used].unbind())
        loss, count = self._cells[self._used]
        self._used += 1
        recording.run(given, self._unit)
        items = count if isinstance(recording.items, Tensor) else recording.items
        window.replayed(lane, loss, items)

    def _tell(self, error: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            while isinstance(error.__context__, Exception):
                error = error.__context__
            text = four_lines(
                "capture=True: this loss function cannot be recorded.",
                why=f"{str(error).splitlines()[0]} It runs as usual. (Said once.)",
                fix="leave out what reads the device (.item(), int(tensor), if tensor, prints), or "
                "capture=True.",
                more="fast",
            )
            warnings.warn(text, InstepWarning, stacklevel=4)


@contextlib.contextmanager
def _uncached() -> Iterator[None]:
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


def _recover(device: torch.device) -> None:
    """Bring the random generator back after a recording that failed: it still waits for its end."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device=device)


def _value_of(value: object) -> Hashable:
    """Return a plain value itself, and the identity of anything else."""
    if value is None or isinstance(value, str | bytes | int | float | bool):
        return (type(value), value)
    return id(value)
