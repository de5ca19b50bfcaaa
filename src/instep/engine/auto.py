"""`Micro("auto")`: as much at a time as fits, found by measuring, and by out of memory if need be.

A window whose pieces do not fit is a transaction: everything it changed is put back, and it is
replayed from its start in smaller pieces. The update is outside of that: once it has begun, nothing
is replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from instep.engine.careful import CarefulStep, release
from instep.engine.function import run_pieces
from instep.engine.memory import (
    Budget,
    CudaMeter,
    NoMeter,
    OverBudgetError,
    bytes_of,
    is_out_of_memory,
    readable,
)
from instep.engine.ranks.headers import PeerOutOfMemoryError
from instep.engine.transaction import Transaction
from instep.errors import SplitError
from instep.splits.cut import shapes_of
from instep.splits.fit import MARGIN, Fit, balanced_sizes, line_through, next_probe, probe_sizes
from instep.splits.plan import Piece
from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

    from instep.engine.lane import Lane
    from instep.engine.loop import Loop
    from instep.engine.memory import Meter
    from instep.engine.update import Update
    from instep.engine.window import Window
    from instep.splits.micro import Micro


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that ran out of memory."""

    text: str
    needed: float | None
    limit: float
    in_close: bool
    is_budget: bool
    """Whether the user's budget was reached, and not the memory's end."""
    is_peer: bool
    """Whether it was another rank, and the pieces of this one have fitted."""


class AutoStep:
    """One update from one batch, in pieces that fit."""

    def __init__(
        self,
        loop: Loop,
        lane: Lane,
        models: Sequence[nn.Module],
        open_window: Callable[[Sequence[Lane]], Window],
        split: Micro,
    ) -> None:
        self._loop, self._lane, self._models = loop, lane, models
        self._open_window = open_window
        self._split = split
        self._largest = 1
        """The largest piece that this attempt came to."""
        self._fit: Fit | None = None

    def run(self, batch: Any, loss_fn: Callable[[Any], Any], *, optimizer: str | None) -> Update:
        """Make the update; raise if even single samples do not fit."""
        samples, cutter = self._split.cutter(batch)
        sizes = self._loop.core.sizes
        # The scaler's owner may have changed it since the last window: come back to that.
        self._loop.core.scaling.read()
        key = (self._lane.name, shapes_of(batch, self._split.dim))
        self._fit = sizes.find(key)
        before = self._begin(batch)
        floor, tries = self._smallest(), 0
        while True:
            meter = self._meter(batch)
            pieces = self._pieces(samples, cutter, meter)
            outcome = self._attempt(meter, pieces, loss_fn, optimizer)
            if not isinstance(outcome, Failure):
                break
            before.roll_back()
            # Only here: the frames of the error held what the failed piece had allocated.
            release()
            if outcome.is_peer:
                continue
            if self._largest <= floor:
                # The smallest piece may fit now that all memory was given back: once more.
                tries += 1
                if tries == 1:
                    continue
                if self._largest == 1:
                    self._refuse(outcome, samples)
                floor, tries = 1, 0
            smaller = (self._fit or Fit(self._largest)).after_failure(self._largest)
            self._fit = replace(smaller, size=max(smaller.size, floor))
            sizes.keep(key, self._fit)
        if self._fit is not None:
            # A batch smaller than the size says nothing about it.
            fits = samples >= self._fit.size
            sizes.keep(key, self._fit.after_success() if fits else self._fit)
        return outcome

    def _begin(self, batch: Any) -> Transaction:
        kept = self._loop.core.kept_buffers
        try:
            return Transaction(self._loop, self._lane, self._models, batch, kept)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        release()
        return Transaction(self._loop, self._lane, self._models, batch, kept)

    def _attempt(
        self,
        meter: Meter,
        pieces: Iterator[Piece],
        loss_fn: Callable[[Any], Any],
        optimizer: str | None,
    ) -> Update | Failure:
        lane, core = self._lane, self._loop.core
        step = CarefulStep(self._loop.index, keep_gradients=core.keep_gradients)
        in_close = False
        # What fails before any piece fails for the smallest, too.
        self._largest = 1
        try:
            with self._open_window([lane]) as window:
                window.is_attempt = True
                together = core.together
                lane.stepping = step if together is None else together.ready(step)
                if isinstance(meter, Budget):
                    # Parameters that are sharded between windows are whole now.
                    meter.include(self._standing())
                with meter.watching():
                    run_pieces(window, pieces, loss_fn, optimizer=optimizer)
                in_close = True
        except RuntimeError as error:
            if step.has_begun or not is_out_of_memory(error):
                raise
            over = isinstance(error, OverBudgetError)
            peer = isinstance(error, PeerOutOfMemoryError)
            return Failure(str(error), meter.needed(error), meter.limit, in_close, over, peer)
        finally:
            lane.stepping = None
        return window.update

    # -- the pieces ------------------------------------------------------------------------------

    def _pieces(
        self, samples: int, cutter: Callable[[slice], Any], meter: Meter
    ) -> Iterator[Piece]:
        """Yield the batch in pieces of the size that is known, or of one found on the way."""
        self._largest = 1
        done = 0
        smallest = self._smallest()
        probes = list(probe_sizes(samples, smallest)) if self._measures(meter) else []
        points: list[tuple[int, float]] = []
        for index, size in enumerate(probes):
            held = meter.held()
            meter.restart()
            yield self._piece(cutter, done, size)
            done += size
            if index:
                points.append((size, meter.peak() - held))
            if index + 1 == len(probes):
                further = next_probe(points, self._room(meter), samples - done, smallest)
                probes += [further] if further else []
        if points:
            line = line_through(points[-2:])
            # What was measured has fitted, whatever a line says.
            self._fit = Fit(max(line.fits(self._room(meter)), *probes), line)
        elif self._fit is not None:
            self._fit = self._fit.within(self._room(meter) - self._missing_gradients(meter))
        largest = samples if self._fit is None else self._fit.size
        for size in balanced_sizes(samples - done, max(largest, 1)):
            yield self._piece(cutter, done, size)
            done += size

    def _measures(self, meter: Meter) -> bool:
        return meter.can_measure and (self._fit is None or self._fit.is_unmeasured)

    def _smallest(self) -> int:
        """Return the smallest piece to begin with: BatchNorm cannot train on one sample."""
        modules = (module for model in self._models for module in model.modules())
        return 1 + any(module.training and isinstance(module, _BatchNorm) for module in modules)

    def _piece(self, cutter: Callable[[slice], Any], start: int, size: int) -> Piece:
        self._largest = max(self._largest, size)
        return Piece(cutter(slice(start, start + size)), size)

    def _room(self, meter: Meter) -> float:
        return meter.limit * (1.0 - MARGIN) - meter.held()

    def _missing_gradients(self, meter: Meter) -> float:
        """Return the bytes of gradients that the first backward of a window will make."""
        if not meter.can_measure:
            return 0.0
        wide = self._lane.accumulate_in
        return sum(
            p.numel() * max(p.itemsize, wide.itemsize if wide is not None else 0)
            for p in self._lane.buffers.members
            if p.requires_grad and p.grad is None
        )

    # -- memory ----------------------------------------------------------------------------------

    def _meter(self, batch: Any) -> Meter:
        device = next((p.device for m in self._models for p in m.parameters()), None)
        budget = self._split.budget
        if device is not None and device.type == "cuda":
            return CudaMeter(device, budget)
        if budget is None:
            return NoMeter()
        held = [*self._standing(), *tensors(batch)]
        meter = Budget(budget, bytes_of(held))
        meter.ignore(held)
        return meter

    def _standing(self) -> Iterator[Tensor]:
        """Yield what is in memory between two windows."""
        for model in self._models:
            yield from model.parameters()
            yield from model.buffers()
        for optimizer in self._lane.optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]  # the shards, also where the model's are whole
            for state in optimizer.state.values():
                yield from (v for v in state.values() if isinstance(v, torch.Tensor))

    def _refuse(self, failure: Failure, samples: int) -> None:
        known = failure.limit < float("inf")
        of = f" of {readable(failure.limit)}" if known else ""
        needed = "more memory than there is"
        if failure.needed is not None:
            needed = f"at least {readable(failure.needed)}{of}"
        where = "the close of the window" if failure.in_close else "a piece of one sample"
        why = f"the batch of {samples} was cut down to single samples, twice, "
        fix = ""
        if failure.is_budget:
            fix = "raise the budget; "
            why += f"and budget= allows {readable(failure.limit)}. Nothing was updated."
        else:
            why += "with all unused memory given back. Nothing was updated. "
            why += f"The allocator said: {failure.text}"
        raise SplitError(
            f"{where} does not fit: it needed {needed}.",
            why=why,
            fix=f"{fix}make the samples or the model smaller, or use checkpointing or a narrower "
            "precision; images are cut further by instep.Patches.",
            more="split",
        )
