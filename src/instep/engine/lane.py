"""A lane: one optimizer, and the gradients between two of its updates.

A stepper has one lane per named optimizer; a lane may hold several that always update together.
Lanes open and close on their own (a generator every 2 micro-batches, a discriminator every 4),
share one loss scale, and never touch each other's gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.engine import gradients as grads
from instep.engine.autograd import backward
from instep.engine.checks import on_host
from instep.engine.tally import Number, Tally
from instep.errors import WindowError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.optim import Optimizer

    from instep.engine.declare import Row
    from instep.engine.scaling import Scaling

Gradients = list[Tensor | None]
SEEDS_KEPT = 256


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
        self.micro_batches = 0
        self.tallies: dict[str, Tally] = {}
        self.references: dict[str, float] = {}
        self.totals: Mapping[str, float] | None = None
        self.keeps_gradients = False
        self._scaling = scaling
        self._alone = alone
        self._accumulate_in = accumulate_in
        self._inputs: list[Tensor] | None = None
        self._widened: list[Tensor] = []
        self._active: str | None = None
        self._parked: dict[str, Gradients] = {}
        self._seeds: dict[float, Tensor] = {}

    def parameters(self) -> list[Tensor]:
        """Return the parameters that this lane updates, as its optimizers hold them now."""
        return grads.parameters_of(self.optimizers)

    def open(self, totals: Mapping[str, float] | None = None) -> None:
        """Begin a window with clean gradients; `totals` are its counts, if known ahead."""
        parameters = self.parameters()
        if self.keeps_gradients:
            grads.clear(parameters)
            self.keeps_gradients = False
        self._refuse_strays(parameters)
        self._widened = grads.widen(parameters, self._accumulate_in)
        # With one optimizer a plain backward is fastest and fills input gradients too. With
        # several, each backward may reach only its own parameters.
        self._inputs = None if self._alone else [p for p in parameters if p.requires_grad]
        self.totals = totals
        self.micro_batches = 0
        self.is_open = True

    def _refuse_strays(self, parameters: Sequence[Tensor]) -> None:
        holders, strays = grads.with_gradients(parameters)
        if not strays:
            return
        if any(grads.to_host([s.count_nonzero() for s in grads.dense_values(strays)])):
            raise WindowError(
                f"a window opened on {len(strays)} gradients that are not its own.",
                why="something outside the window called backward; the window would add to it.",
                fix="call optimizer.zero_grad() before the loop, or move that backward into a "
                "window.",
                more="stray-gradients",
            )
        grads.clear(holders)

    def backward(
        self,
        losses: Sequence[Row],
        *,
        is_sum: bool,
        retain_graph: bool,
    ) -> None:
        """Backpropagate each (term, loss, items, weight), so that the close can normalise."""
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
        if self.totals is not None or len(counted) == 1:
            self._activate(counted[0][0])
            backward(tensors, seeds, retain_graph=retain_graph, inputs=self._inputs)
        else:
            for index, (term, loss, _, _) in enumerate(counted):
                keep = retain_graph or index < len(counted) - 1
                self._activate(term)
                backward([loss], [seeds[index]], retain_graph=keep, inputs=self._inputs)
        for term, loss, items, weight in counted:
            # Reading a loss that is on the host costs nothing; on a device it waits for the close.
            value = loss.item() if on_host(loss) else loss.detach()
            self.tallies[term].declared.append((value, items, weight, is_sum))

    def _tally(self, term: str) -> Tally:
        known = self.references.get(term)
        if self.totals is not None:
            known = self.totals.get(term) or 1.0
        tally = self.tallies[term] = Tally(known)
        return tally

    def _seed(
        self, tally: Tally, loss: Tensor, items: Number, weight: float, *, is_sum: bool
    ) -> Tensor:
        share = tally.share(items, loss.dtype, is_sum=is_sum)
        if isinstance(share, Tensor):
            return (share * (weight * self._scaling.scale)).to(loss.device, loss.dtype)
        value = share * weight * self._scaling.scale
        seed = self._seeds.get(value)
        if seed is None or seed.dtype is not loss.dtype or seed.device != loss.device:
            if len(self._seeds) >= SEEDS_KEPT:
                self._seeds.clear()
            seed = torch.full((), value, dtype=loss.dtype, device=loss.device)
            self._seeds[value] = seed
        return seed

    def _activate(self, term: str) -> None:
        """Let `.grad` be this term's buffer; with counts known ahead all terms share one."""
        if self.totals is not None or self._active == term:
            return
        if self._active is not None:
            parameters = self.parameters()
            self._parked[self._active] = [p.grad for p in parameters]
            grads.assign(parameters, self._parked.pop(term, []))
        self._active = term

    @property
    def buffers(self) -> dict[str, Gradients]:
        """Every gradient buffer of the open window, by term; one called "" if terms share it."""
        held: Gradients = [p.grad for p in self.parameters()]
        return {self._active or "": held, **self._parked}

    @property
    def is_touched(self) -> bool:
        """Whether anything was added to this window, declared or not."""
        parameters = self.parameters()
        return bool(self.tallies) or any(p.grad is not None for p in parameters)

    def rescale(self, ratio: float) -> None:
        """Follow a change of the loss scale in the middle of a window."""
        if ratio != 1.0 and self.is_open:
            for buffer in self.buffers.values():
                grads.multiply([g for g in buffer if g is not None], ratio)

    def merge(self, factors: Mapping[str, float]) -> None:
        """Fold the buffers of all terms into `.grad`, each multiplied by its own factor.

        A factor of 0 says the term had no items: its buffer holds 0/0 at worst, and is dropped.
        """
        parameters = self.parameters()
        merged: Gradients = [None] * len(parameters)
        for term, buffer in self.buffers.items():
            if not factors[term]:
                continue
            grads.multiply([g for g in buffer if g is not None], factors[term])
            for index, gradient in enumerate(buffer):
                held = merged[index]
                if gradient is not None:
                    merged[index] = gradient if held is None else held.add_(gradient)
        self._parked.clear()
        grads.assign(parameters, merged)

    @property
    def shares_buffer(self) -> bool:
        """Whether all gradients of the window are in `.grad` alone."""
        return not self._parked

    def narrow(self) -> None:
        """Give gradients the type their optimizer expects, before it steps."""
        grads.narrow(self._widened)
        self._widened = []

    def end(self, *, keep_gradients: bool = False) -> None:
        """Forget the window; its gradients stay readable until the next one only if asked for."""
        self.is_open = False
        self.tallies = {}
        self.totals = None
        self._active = None
        self._parked = {}
        self.keeps_gradients = keep_gradients
        if not keep_gradients:
            grads.clear(self.parameters())
        self.narrow()

    def restore(
        self,
        *,
        micro_batches: int,
        declared: Mapping[str, Tally],
        buffers: Mapping[str, Gradients],
        active: str | None,
        totals: Mapping[str, float] | None,
    ) -> None:
        """Continue a window that was saved while it was open; `open` was called just before."""
        self.micro_batches = micro_batches
        self.tallies = dict(declared)
        self.totals = totals
        self._active = active
        for term, buffer in buffers.items():
            if term == (active or ""):
                grads.assign(self.parameters(), buffer)
            else:
                self._parked[term] = list(buffer)

    @property
    def active(self) -> str | None:
        """The term whose gradients are in `.grad` now."""
        return self._active
