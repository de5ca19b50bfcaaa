"""A lane: one optimizer, and the gradients between two of its updates.

A stepper has one lane per named optimizer; a lane may hold several that always update together.
Lanes open and close on their own (a generator every 2 micro-batches, a discriminator every 4),
share one loss scale, and never touch each other's gradients.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch import Tensor

from instep.engine.autograd import backward
from instep.engine.buffers import Buffers
from instep.engine.checks import on_host
from instep.engine.seeds import Seeds
from instep.engine.tally import Number, Tally

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch.optim import Optimizer

    from instep.engine.declare import Row
    from instep.engine.scaling import Scaling

# Every lane with a window open, of all steppers: as long as there is only one, a plain backward
# cannot fill the gradients of another.
_OPEN: weakref.WeakSet[Lane] = weakref.WeakSet()


class Lane:
    """One optimizer's window: what was added to `.grad`, and what it is a mean of."""

    def __init__(
        self,
        name: str,
        optimizers: Sequence[Optimizer],
        scaling: Scaling,
        *,
        alone: bool,
        accumulate_in: torch.dtype | None,
    ) -> None:
        self.name = name
        self.optimizers = optimizers
        self.schedulers: list[Any] = []
        self.clip_norm: float | None = None
        self.clip_value: float | None = None
        self.is_open = False
        self.is_closing = False
        self.micro_batches = 0
        self.accumulate_in = accumulate_in
        self.buffers = Buffers(optimizers, accumulate_in)
        self.tallies: dict[str, Tally] = {}
        self.references: dict[str, float] = {}
        self.totals: Mapping[str, float] | None = None
        self._scaling = scaling
        self._seeds = Seeds()
        self._alone = alone

    def open(self, totals: Mapping[str, float] | None = None) -> None:
        """Begin a window with clean gradients; `totals` are its counts, if known ahead."""
        self.buffers.open()
        self.totals = totals
        self.micro_batches = 0
        self.is_open = True
        _OPEN.add(self)

    def end(self, *, keep_gradients: bool = False) -> None:
        """Forget the window; its gradients stay readable until the next one only if asked for."""
        self.is_open = self.is_closing = False
        _OPEN.discard(self)
        self.tallies = {}
        self.totals = None
        self.buffers.close(keep=keep_gradients)

    def backward(self, losses: Sequence[Row], *, is_sum: bool, retain_graph: bool) -> None:
        """Backpropagate each (term, loss, items, weight), so that the close can normalise."""
        self.buffers.require_untouched()
        tensors: list[Tensor] = []
        seeds: list[Tensor] = []
        counted: list[Row] = []
        for row in losses:
            term, loss, items, weight = row
            tally = self.tallies.get(term) or self._tally(term)
            if isinstance(items, Tensor) or items > 0:
                tensors.append(loss)
                seeds.append(self._seed(tally, loss, items, weight, is_sum=is_sum))
                counted.append(row)
            else:
                # Nothing to backpropagate, and the loss may be 0/0: only the count is remembered.
                tally.declared.append((0.0, 0.0, weight, is_sum))
        if not counted:
            return
        inputs = self._inputs()
        if inputs is None or inputs:
            self._run(counted, tensors, seeds, retain_graph=retain_graph, inputs=inputs)
        for term, loss, items, weight in counted:
            # Reading a loss that is on the host costs nothing; on a device it waits for the close.
            value = loss.item() if on_host(loss) else loss.detach()
            self.tallies[term].declared.append((value, items, weight, is_sum))

    def _run(
        self,
        rows: Sequence[Row],
        losses: Sequence[Tensor],
        seeds: Sequence[Tensor],
        *,
        retain_graph: bool,
        inputs: Sequence[Tensor] | None,
    ) -> None:
        if self.totals is not None or len(rows) == 1:
            if self.totals is None:
                self.buffers.activate(rows[0][0])
            backward(losses, seeds, retain_graph=retain_graph, inputs=inputs)
            self.buffers.added()
            return
        for index, (term, loss, _, _) in enumerate(rows):
            keep = retain_graph or index < len(rows) - 1
            self.buffers.activate(term)
            backward([loss], [seeds[index]], retain_graph=keep, inputs=inputs)
            self.buffers.added()

    def _inputs(self) -> list[Tensor] | None:
        """Return what a backward may reach: all leaves, or only ours while other lanes are near.

        A plain backward is fastest, fills the gradients of inputs and allows reentrant checkpoints.
        """
        if self._alone and len(_OPEN) == 1:
            return None
        return [p for p in self.buffers.members if p.requires_grad]

    def _tally(self, term: str) -> Tally:
        if self.totals is not None:
            tally = Tally(self.totals.get(term) or 1.0, is_fixed=True)
        else:
            tally = Tally(self.references.get(term))
        self.tallies[term] = tally
        return tally

    def _seed(
        self, tally: Tally, loss: Tensor, items: Number, weight: float, *, is_sum: bool
    ) -> Tensor:
        share = tally.share(items, loss.dtype, is_sum=is_sum)
        factor = weight * self._scaling.scale
        if isinstance(share, Tensor):
            return (share * factor).to(loss.device, loss.dtype)
        return self._seeds.take(share * factor, loss)

    @property
    def is_touched(self) -> bool:
        """Whether anything was added to this window, declared or not."""
        return bool(self.tallies) or bool(self.buffers.gradients())

    def rescale(self, ratio: float) -> None:
        """Follow a change of the loss scale in the middle of a window."""
        if ratio != 1.0 and self.is_open:
            self.buffers.scale(ratio)
