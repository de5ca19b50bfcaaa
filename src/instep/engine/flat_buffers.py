"""Gradient buffers that are flat: one tensor per parameter group and type, and `.grad` its views.

The interface is that of `Buffers`. What differs: gradients are zeros before the first backward, not
None, so which parameters a window has reached is noted by hooks; and one version counter covers all
of them, so that no change by anybody else goes unseen.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import weakref
from functools import partial
from typing import TYPE_CHECKING

import torch

from instep.engine import gradients as grads
from instep.engine.buffers import SHARED, Buffers, refuse_touched
from instep.fast.flat import Flat
from instep.fast.fuse import lend, places_of, take_back
from instep.fast.operators import Slot, new_slot
from instep.fast.rules import rule_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from instep.engine.buffers import Gradients
    from instep.fast.fuse import Place


def _is_flattenable(parameter: Tensor, *, interpreted: bool) -> str | None:
    if not parameter.dtype.is_floating_point:
        return f"a parameter is of type {parameter.dtype}"
    if not (parameter.is_cuda or (interpreted and parameter.is_cpu)):
        return f"a parameter is on {parameter.device}, and the kernel needs a CUDA device"
    if not torch.ops.aten.is_non_overlapping_and_dense(parameter):
        return "a parameter has holes or overlaps in memory"
    return None


def why_not_flat(models: Sequence[torch.nn.Module], optimizers: Sequence[Optimizer]) -> str | None:
    """Return why these optimizers cannot be updated by the kernel; None if they can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    # Triton's interpreter runs kernels on the host, to test their arithmetic.
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    for optimizer in optimizers:
        if rule_of(optimizer) is None:
            return f"the kernel does not know {type(optimizer).__name__} with these options"
    members = grads.parameters_of(optimizers)
    found = (_is_flattenable(p, interpreted=interpreted) for p in members)
    reason = next((one for one in found if one is not None), None)
    sparse = [
        name for model in models for name, m in model.named_modules() if getattr(m, "sparse", False)
    ]
    return reason if reason or not sparse else f"`{sparse[0]}` has sparse gradients"


class _Reached:
    """The parameters that the backwards of the active term have reached, by id."""

    def __init__(self) -> None:
        self.ids: set[int] = set()

    def add(self, one: int) -> None:
        """Note a parameter that a fused layer has added to."""
        self.ids.add(one)


class _Note:
    """A hook that notes a parameter, and does nothing once those who want to know are gone."""

    def __init__(self, reached: _Reached) -> None:
        self._held = weakref.ref(reached)

    def __call__(self, parameter: Tensor) -> None:
        reached = self._held()
        if reached is not None:
            reached.ids.add(id(parameter))


class FlatBuffers(Buffers):
    """The gradients of one window, in flat tensors that stay from window to window."""

    def __init__(self, optimizers: Sequence[Optimizer], accumulate_in: torch.dtype | None) -> None:
        super().__init__(optimizers, accumulate_in)
        self.flats: list[Flat] = []
        self._ids: list[int] = []
        self._reached = _Reached()
        # By id, because tensors compare elementwise; the reference tells a new one with an old id.
        self._hooked: dict[int, weakref.ref[Tensor]] = {}
        # Terms beside the active one: their flat gradients, and what they have reached.
        self._waiting: dict[str, tuple[list[Tensor], set[int]]] = {}
        self._held: list[Tensor] = []
        self._versions: list[int] = []
        self._places: dict[int, list[Place]] = {}
        self._slots: dict[int, int] = {}
        self._narrow_views: dict[int, list[Tensor]] = {}
        self.layout = 0
        """Counts how often the buffers were laid out anew."""
        self.spared: frozenset[int] = frozenset()
        """Slots that hold anything: their first product will be written over it."""
        self._to_spare: frozenset[int] = frozenset()

    def open(self) -> None:
        """Take possession: every `.grad` a view of zeros, but for those that are to be spared."""
        super().open()
        self._lay_out()
        self._waiting = {}
        self._reached.ids = set()
        spared, self._to_spare = self._to_spare, frozenset()
        for flat in self.flats:
            self._zero(flat, spared, inside=False)
        self._show([flat.gradients for flat in self.flats])
        self._lend()
        self.spared = spared
        self.seal()

    def spare(self, slots: frozenset[int]) -> None:
        """Leave these slots as they are at the next opening: a replay will write to them first."""
        self._to_spare = slots

    def begin(self) -> None:
        """Get ready for a backward that adds."""
        self.fill_spared()
        super().begin()

    def fill_spared(self) -> None:
        """Write the zeros that were spared, before anybody reads or adds."""
        if self.spared:
            spared, self.spared = self.spared, frozenset()
            for flat in self.flats:
                self._zero(flat, spared, inside=True)

    def _zero(self, flat: Flat, slots: frozenset[int], *, inside: bool) -> None:
        """Zero the gradients of these slots, or all but them."""
        if not slots:
            flat.gradients.zero_()
            return
        pairs = zip(flat.members, flat.views, strict=True)
        chosen = [view for p, view in pairs if (self._slots.get(id(p)) in slots) == inside]
        if chosen:
            torch._foreach_zero_(chosen)

    def fuse(self, models: Sequence[torch.nn.Module]) -> None:
        """Lend the fused layers of these models their copies and gradients, in every window."""
        self._places = places_of(models)
        self._slots = {key: new_slot() for key in self._places}

    def _lend(self) -> None:
        for flat, held in zip(self.flats, self._held, strict=True):
            wanted = [i for i, p in enumerate(flat.members) if id(p) in self._places]
            if not wanted or flat.dtype is not torch.float32:
                continue
            narrow = self._narrow_of(flat)
            views = flat.views if held is flat.gradients else flat.cut(held)
            for index in wanted:
                key = id(flat.members[index])
                slot = Slot(views[index], partial(self._reached.add, key))
                lend(self._places[key], narrow[index], self._slots[key], slot)

    def _take_back(self) -> None:
        for places in self._places.values():
            take_back(places)

    def _narrow_of(self, flat: Flat) -> list[Tensor]:
        known = self._narrow_views.get(id(flat))
        if known is None:
            known = self._narrow_views[id(flat)] = flat.keep_narrow()
        elif flat.was_written:
            flat.renew_narrow()
        return known

    def _lay_out(self) -> None:
        ids = [id(p) for p in self.members]
        if ids == self._ids:
            self._hook()
            for flat in self.flats:
                if flat.is_moved():
                    flat.adopt()
            return
        self._ids = ids
        self.layout += 1
        self._to_spare = frozenset()
        self.flats = []
        self._narrow_views = {}
        for optimizer in self._optimizers:
            rule = rule_of(optimizer)
            assert rule is not None  # noqa: S101 -- looked at before this class was chosen
            for group in optimizer.param_groups:
                kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
                for parameter in dict.fromkeys(group["params"]):
                    kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
                for (dtype, _), members in kinds.items():
                    wide = self._accumulate_in
                    sums_in = wide if wide is not None and wide.itemsize > dtype.itemsize else dtype
                    flat = Flat(optimizer, group, members, rule=rule, gradient_type=sums_in)
                    self.flats.append(flat)
        self._hook()

    def _hook(self) -> None:
        """Note which parameters a backward reaches."""
        note = _Note(self._reached)
        for parameter in self.members:
            known = self._hooked.get(id(parameter))
            if parameter.requires_grad and (known is None or known() is not parameter):
                self._hooked[id(parameter)] = weakref.ref(parameter)
                parameter.register_post_accumulate_grad_hook(note)

    def _show(self, flats: list[Tensor]) -> None:
        """Let `.grad` be views of these."""
        self._held = flats
        self.begin()
        for flat, tensor in zip(self.flats, flats, strict=True):
            views = flat.views if tensor is flat.gradients else flat.cut(tensor)
            grads.assign(flat.members, views)
        if self._widened:
            grads.demand(self._widened, None)

    @property
    def can_part(self) -> bool:
        """Whether a backward may leave its gradients apart: nobody looks at the sums meanwhile."""
        found = (getattr(p, "_post_accumulate_grad_hooks", None) or {} for p in self.members)
        hooks = (hook for one in found for hook in one.values())
        return not self._widened and all(isinstance(hook, _Note) for hook in hooks)

    @contextlib.contextmanager
    def apart(self) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Let backwards make gradients of their own; at the end, each beside the sum it is for.

        What fused layers add to their slots is not concerned.
        """
        found: list[tuple[Tensor, Tensor]] = []
        held = [p.grad for p in self.members]
        grads.clear(self.members)
        try:
            yield found
            for parameter, sums in zip(self.members, held, strict=True):
                if parameter.grad is not None and sums is not None:
                    found.append((sums, parameter.grad))
        finally:
            grads.assign(self.members, held)

    @property
    def reached(self) -> frozenset[int]:
        """The parameters that the active term's backwards have reached, by id."""
        return frozenset(self._reached.ids)

    def forget_reached(self) -> None:
        """Begin to note anew."""
        self._reached.ids = set()

    def reach(self, ids: frozenset[int]) -> None:
        """Note what a replayed backward has reached: hooks run only when it is recorded."""
        self._reached.ids |= ids

    def active_in(self, flat: Flat) -> list[bool]:
        """Return which parameters of a flat buffer the window has reached."""
        ids = self._reached.ids
        return [id(p) in ids for p in flat.members]

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the parameters that were reached."""
        ids = self._reached.ids
        return [p.grad for p in self.members if p.grad is not None and id(p) in ids]

    def by_term(self) -> dict[str, Gradients]:
        """Return every buffer under the name of its term, None where nothing was reached."""
        found = {self.active or SHARED: self._listed_views(self._held, self._reached.ids)}
        for term, (flats, ids) in self._waiting.items():
            found[term] = self._listed_views(flats, ids)
        return found

    def _listed_views(self, flats: Sequence[Tensor], ids: set[int]) -> Gradients:
        views: dict[int, Tensor] = {}
        for flat, tensor in zip(self.flats, flats, strict=True):
            views.update(zip(map(id, flat.members), flat.cut(tensor), strict=True))
        return [views[id(p)] if id(p) in ids else None for p in self.members]

    @property
    def is_single(self) -> bool:
        """Whether all gradients of the window are in one buffer."""
        return not self._waiting

    def activate(self, term: str) -> None:
        """Let `.grad` be this term's buffer, and let the one that was there wait."""
        if self.active == term:
            return
        if self.active is not None:
            self._waiting[self.active] = (self._held, self._reached.ids)
            fresh = None if term in self._waiting else [torch.zeros_like(f) for f in self._held]
            flats, self._reached.ids = (
                (fresh, set()) if fresh is not None else self._waiting.pop(term)
            )
            self._show(flats)
            self._lend()
        self.active = term
        self.seal()

    def end(self, *, added: bool) -> None:
        """Note that a backward is over, and whether it has added to `.grad`."""
        if self._widened:
            grads.demand(self._widened, None)
        if added:
            self._added += 1
            self.seal()

    def seal(self) -> None:
        """Remember the version of every buffer: each change of any view of it counts there."""
        self._versions = [tensor._version for tensor in self._held]  # noqa: SLF001

    def require_untouched(self) -> None:
        """Raise if a gradient changed since our last backward, or was replaced."""
        is_same = self._versions == [tensor._version for tensor in self._held]  # noqa: SLF001
        for flat, held in zip(self.flats, self._held, strict=True):
            for parameter in (flat.members[0], flat.members[-1]):
                gradient = parameter.grad
                is_same &= gradient is not None and gradient._base is held  # noqa: SLF001
        if not is_same:
            refuse_touched()

    def scale(self, ratio: float) -> None:
        """Multiply every buffer, when the loss scale changes in the middle of a window."""
        for flats in (self._held, *(flats for flats, _ in self._waiting.values())):
            for tensor in flats:
                tensor.mul_(ratio)
        self.seal()

    def parts(self, shares: Mapping[str, float]) -> dict[str, list[Tensor]]:
        """Return the flat gradients of every term that has a share; they make up the update."""
        waiting = {term: flats for term, (flats, _) in self._waiting.items()}
        every = {self.active or SHARED: self._held, **waiting}
        reached = {self.active or SHARED: self._reached.ids}
        reached |= {term: ids for term, (_, ids) in self._waiting.items()}
        self._reached.ids = set().union(*(reached[term] for term in every if shares[term]))
        return {term: flats for term, flats in every.items() if shares[term]}

    def merge(self, factors: Mapping[str, float]) -> None:
        """Fold the buffers of all terms into one, each multiplied by its own factor."""
        own = factors[self.active or SHARED]
        for tensor in self._held:
            # A term without items may hold 0/0, which no factor would make 0.
            tensor.mul_(own) if own else tensor.zero_()
        if not own:
            self._reached.ids = set()
        for term, (flats, ids) in self._waiting.items():
            if factors[term]:
                self._reached.ids |= ids
                for into, tensor in zip(self._held, flats, strict=True):
                    into.add_(tensor, alpha=factors[term])
        self._waiting = {}
        if self._held[0] is not self.flats[0].gradients:
            for flat, tensor in zip(self.flats, self._held, strict=True):
                flat.gradients.copy_(tensor)
            self._show([flat.gradients for flat in self.flats])
        self.seal()

    def restore(self, saved: Mapping[str, Gradients], active: str | None) -> None:
        """Fill the buffers of a window that was saved while it was open."""
        self.fill_spared()
        self.active = None
        order = [term for term in saved if term != (active or SHARED)]
        for term in (*order, active or SHARED):
            self.activate(term)
            gradients = [*saved[term], *[None] * (len(self.members) - len(saved[term]))]
            for member, gradient in zip(self.members, gradients, strict=True):
                if gradient is not None and member.grad is not None:
                    member.grad.copy_(gradient)
                    self._reached.ids.add(id(member))
        self.active = active
        self._added = 1
        self.seal()

    def close(self, *, keep: bool) -> None:
        """Let go: gradients cleared, or kept readable until the next opening if asked for."""
        ids = self._reached.ids
        self._take_back()
        if keep:
            grads.clear(p for p in self.members if id(p) not in ids)
            self._detach()
        self._waiting = {}
        super().close(keep=keep)

    def _detach(self) -> None:
        """Give kept gradients memory of their own: the buffers are wanted for the next window."""
        for parameter in self.members:
            gradient = parameter.grad
            if gradient is not None:
                parameter.grad = None
                if gradient.dtype is parameter.dtype:
                    parameter.grad = gradient.clone()
                else:
                    parameter.grad = gradient.to(parameter.dtype)
