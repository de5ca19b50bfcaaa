"""A lane: one optimizer, and the gradients between two of its updates.

A stepper has one lane per named optimizer; a lane may hold several that always update together.
Lanes open and close on their own (a generator every 2 micro-batches, a discriminator every 4),
share one loss scale, and never touch each other's gradients.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Any

from torch import Tensor

from instep.engine.arithmetic import reference
from instep.engine.autograd import backward, refuse_reentrant
from instep.engine.buffers import Buffers
from instep.engine.checks import on_host
from instep.engine.flat_buffers import FlatBuffers
from instep.engine.means import Means
from instep.engine.seeds import Seeds
from instep.engine.tally import Number, Tally
from instep.errors import WindowError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch.optim import Optimizer

    from instep.engine.declare import Row
    from instep.engine.fused_close import Pending
    from instep.engine.scaling import Scaling


class _Open(threading.local):
    """Every lane with a window open in this thread, of all steppers.

    As long as there is only one, a plain backward cannot fill the gradients of another.
    """

    def __init__(self) -> None:
        self.lanes: weakref.WeakSet[Lane] = weakref.WeakSet()


_OPEN = _Open()
NOTHING = contextlib.nullcontext()


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
        flat: bool = False,
    ) -> None:
        self.name = name
        self.optimizers = optimizers
        self.schedulers: list[Any] = []
        self.clip_norm: float | None = None
        self.clip_value: float | None = None
        self.is_open = False
        self.is_closing = False
        self.is_in_backward = False
        """Whether gradients are being added now: hooks of it run then."""
        self.micro_batches = 0
        self.is_gathered = False
        """Whether the loss is that of all ranks' samples, and the same on each of them."""
        self.accumulate_in = accumulate_in
        self.is_flat = flat
        kind = FlatBuffers if flat else Buffers
        self.buffers = kind(optimizers, accumulate_in)
        self.pending: Pending | None = None
        """An update that was launched and whose outcome is not known yet."""
        self.has_said = ""
        """Why its last window was not closed by the kernel, if that was said."""
        self.means: Means | None = None
        """What the first windows' losses say of their items."""
        self.tallies: dict[str, Tally] = {}
        self.references: dict[str, float] = {}
        self.totals: Mapping[str, float] | None = None
        self.on_nothing: Callable[[], None] | None = None
        """What to do about a backward without items, where every backward needs all ranks."""
        self.stepping: Callable[[Sequence[Optimizer]], None] | None = None
        """How the optimizers are stepped, if not one after the other by `step()`."""
        self._scaling = scaling
        self._seeds = Seeds()
        self._is_guarded = False
        self._is_looked_at = False
        self._alone = alone

    def open(self, totals: Mapping[str, float] | None = None) -> None:
        """Begin a window with clean gradients; `totals` are its counts, if known ahead."""
        self.buffers.open()
        self.means = Means.of(self.optimizers[0])
        if _OPEN.lanes:
            self._refuse_shared()
        self.totals = totals
        self.micro_batches = 0
        self.is_gathered = False
        self.is_open = True
        _OPEN.lanes.add(self)
        if not self._is_guarded:
            self._is_guarded = True
            for optimizer in self.optimizers:
                _guard(optimizer, weakref.ref(self))
                if self.is_flat:
                    _keep_current(optimizer, weakref.ref(self))

    def end(self, *, keep_gradients: bool = False) -> None:
        """Forget the window; its gradients stay readable until the next one only if asked for."""
        self.is_open = self.is_closing = False
        _OPEN.lanes.discard(self)
        self.tallies = {}
        self.totals = None
        self.buffers.close(keep=keep_gradients)

    def step(self) -> None:
        """Let every optimizer update its parameters, once."""
        if self.stepping is not None:
            self.stepping(self.optimizers)
            return
        for optimizer in self.optimizers:
            optimizer.step()

    def _refuse_shared(self) -> None:
        for other in _OPEN.lanes:
            if other is not self and {*map(id, other.buffers.members)} & {
                *map(id, self.buffers.members)
            }:
                raise WindowError(
                    "two open windows hold the same parameter.",
                    why="two steppers train it at once, and each would take the other's gradients.",
                    fix="pass both optimizers to one Stepper, or close one window first.",
                    more="several-optimizers",
                )

    def backward(self, losses: Sequence[Row], *, is_sum: bool, retain_graph: bool) -> None:
        """Backpropagate each (term, loss, items, weight), so that the close can normalise."""
        self.buffers.require_untouched()
        if self.on_nothing is not None and len(losses) > 1:
            _refuse_terms()
        self._look_at(losses, is_sum=is_sum)
        counted: list[Row] = []
        seeds: list[Tensor] = []
        for row in losses:
            term, loss, items, weight = row
            tally = self.tallies.get(term) or self._tally(term)
            if isinstance(items, Tensor) or items > 0:
                counted.append(row)
                seeds.append(self._seed(tally, loss, items, weight, is_sum=is_sum))
            else:
                # Nothing to backpropagate, and the loss may be 0/0: only the count is remembered.
                tally.declared.append((0.0, 0.0, weight, is_sum))
        if not counted:
            if self.on_nothing is not None:
                self.on_nothing()
            return
        # A plain backward is fastest, fills the gradients of inputs and allows reentrant
        # checkpoints; while other lanes are near, each reaches only its own parameters.
        inputs = None
        if not self._alone or len(_OPEN.lanes) > 1:
            inputs = self._own_inputs(counted)
        if inputs is None or inputs:
            self._run(counted, seeds, retain_graph=retain_graph, inputs=inputs)
        for term, loss, items, weight in counted:
            # Reading a loss that is on the host costs nothing; on a device it waits for the close.
            value = loss.item() if on_host(loss) else loss.detach()
            tally = self.tallies[term]
            tally.declared.append((value, items, weight, is_sum))
            if type(value) is not float or isinstance(items, Tensor):
                tally.is_on_host = False

    def _look_at(self, rows: Sequence[Row], *, is_sum: bool) -> None:
        if self.means is not None:
            for term, loss, items, _ in rows:
                self.means.note(term, loss, items, is_sum=is_sum)

    def _run(
        self,
        rows: Sequence[Row],
        seeds: Sequence[Tensor],
        *,
        retain_graph: bool,
        inputs: Sequence[Tensor] | None,
    ) -> None:
        if self.totals is not None or len(rows) == 1:
            if self.totals is None:
                self.buffers.activate(rows[0][0])
            self._add([row[1] for row in rows], seeds, retain_graph, inputs)
            return
        for index, (term, loss, _, _) in enumerate(rows):
            keep = retain_graph or index < len(rows) - 1
            self.buffers.activate(term)
            self._add([loss], [seeds[index]], keep, inputs)

    def _add(
        self,
        losses: Sequence[Tensor],
        seeds: Sequence[Tensor],
        retain_graph: bool,  # noqa: FBT001 -- called once per micro-batch, from two lines above
        inputs: Sequence[Tensor] | None,
    ) -> None:
        self.buffers.begin()
        self.is_in_backward = True
        try:
            account = self.buffers.account
            with account.adding(losses[0]) if account.is_lent else NOTHING:
                backward(losses, seeds, retain_graph=retain_graph, inputs=inputs)
        except BaseException:
            self.buffers.end(added=False)
            raise
        finally:
            self.is_in_backward = False
        self.buffers.end(added=True)

    def _own_inputs(self, rows: Sequence[Row]) -> list[Tensor]:
        """Return the parameters that a backward of this lane may reach."""
        if not self._is_looked_at:
            self._is_looked_at = True
            for _, loss, _, _ in rows:
                refuse_reentrant(loss)
        return [p for p in self.buffers.members if p.requires_grad]

    def _tally(self, term: str) -> Tally:
        if self.totals is not None:
            tally = Tally(self.totals.get(term) or 1.0, is_fixed=True)
        elif self.on_nothing is not None:
            # Gradients of all ranks are added up before the close: the same reference everywhere.
            tally = Tally(self.references.get(term, 1.0), is_fixed=True)
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

    def choose_reference(self, term: str, items: int | None) -> None:
        """Have a reference before the first count is known, which may be on a device."""
        if term not in self.tallies and term not in self.references:
            self.references[term] = reference(items or 1)

    def unit(self, term: str) -> float:
        """Return what one item of a term weighs, for a backward that multiplies by its count."""
        tally = self.tallies.get(term) or self._tally(term)
        known = tally.reference
        assert isinstance(known, float)  # noqa: S101 -- chosen before the window's first backward
        tally.is_fixed = True
        return self._scaling.scale / known

    def note(self, term: str, loss: Tensor, items: Number) -> None:
        """Note a backward that was replayed."""
        tally = self.tallies[term]
        tally.declared.append((loss, items, 1.0, False))
        tally.is_on_host = False

    def reachable(self) -> list[Tensor] | None:
        """Return the parameters that a backward may reach; None for all."""
        if self._alone and len(_OPEN.lanes) == 1:
            return None
        return [p for p in self.buffers.members if p.requires_grad]

    @property
    def is_touched(self) -> bool:
        """Whether anything was added to this window, declared or not."""
        return bool(self.tallies) or bool(self.buffers.gradients())

    def rescale(self, ratio: float) -> None:
        """Follow a change of the loss scale in the middle of a window."""
        if ratio != 1.0 and self.is_open:
            self.buffers.scale(ratio)


def _refuse_terms() -> None:
    raise WindowError(
        'a loss of several terms with sync="micro-batch".',
        why="each term has a backward of its own, and every backward needs all ranks. The window "
        "was thrown away.",
        fix='add the terms up before, or pass sync="window".',
        more="ranks",
    )


def _keep_current(optimizer: Optimizer, lane: weakref.ref[Lane]) -> None:
    """Let a state that is saved or loaded come after the last update, which may be under way."""

    def wait(*_: object) -> None:
        held = lane()
        if held is not None and held.pending is not None:
            held.pending.resolve()

    optimizer.register_state_dict_pre_hook(wait)
    optimizer.register_load_state_dict_pre_hook(wait)


def _guard(optimizer: Optimizer, lane: weakref.ref[Lane]) -> None:
    """Refuse steps that are not the window's own, while one is open; the hook outlives no lane."""

    def refuse(*_: object) -> None:
        held = lane()
        if held is not None and held.is_open and not held.is_closing:
            raise WindowError(
                "optimizer.step() was called inside a window.",
                why="the window steps once, at its end, with the gradient of all its items; a step "
                "in between would use a part of it, not normalised.",
                fix="remove optimizer.step() from the loop.",
                more="porting",
            )

    if hasattr(optimizer, "register_step_pre_hook"):
        optimizer.register_step_pre_hook(refuse)
