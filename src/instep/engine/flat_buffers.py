"""Gradient buffers that are flat: one tensor per parameter group and type, and `.grad` its views.

The interface is that of `Buffers`. What differs: gradients are zeros before the first backward, not
None, so which parameters a window has reached is noted by hooks; and one version counter covers all
of them, so that no change by anybody else goes unseen.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

import torch

from instep.engine import gradients as grads
from instep.engine.buffers import SHARED, Buffers, refuse_touched
from instep.engine.flattening import refuse_shared_memory, share_memory
from instep.fast.flat import Flat
from instep.fast.lending import Lending, NoteReached, Reached
from instep.fast.rules import rule_of_class
from instep.fast.slots import is_watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from instep.engine.buffers import Gradients


class FlatBuffers(Buffers):
    """The gradients of one window, in flat tensors that stay from window to window."""

    def __init__(self, optimizers: Sequence[Optimizer], accumulate_in: torch.dtype | None) -> None:
        super().__init__(optimizers, accumulate_in)
        self.flats: list[Flat] = []
        self._ids: list[tuple[int, ...]] = []
        self._reached = Reached()
        # By id, because tensors compare elementwise; the reference tells a new one with an old id.
        self._hooked: dict[int, weakref.ref[Tensor]] = {}
        # Terms beside the active one: their flat gradients, and what they have reached.
        self._waiting: dict[str, tuple[list[Tensor], set[int]]] = {}
        self._held: list[Tensor] = []
        self._versions: list[int] = []
        self._lending = Lending(self.account)
        self._slots = self._lending.slots
        self.layout = 0
        """Counts how often the buffers were laid out anew."""
        self.spared: frozenset[int] = frozenset()
        """Slots that hold anything: their first product will be written over it."""
        self._to_spare: frozenset[int] = frozenset()

    def open(self) -> None:
        """Take possession: every `.grad` a view of zeros, but for those that are to be spared."""
        super().open()
        self._lay_out()
        self._lending.find()
        self._waiting = {}
        self._reached.ids = set()
        spared, self._to_spare = self._to_spare, frozenset()
        for flat in self.flats:
            self._zero(flat, spared, inside=False)
        self._show([flat.gradients for flat in self.flats])
        if self._lending.lend(self.flats, self._held, self._reached):
            # What was recorded adds to what was lent then.
            self.layout += 1
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
        self._lending.models = models
        self._lending.find()

    def _lay_out(self) -> None:
        plan = [one for optimizer in self._optimizers for one in _kinds_of(optimizer)]
        ids = [(id(optimizer), *map(id, members)) for optimizer, _, members in plan]
        moved = ids == self._ids and [flat for flat in self.flats if flat.is_moved()]
        if moved and share_memory(self.members):
            refuse_shared_memory()
        if ids == self._ids and all(flat.is_alike() for flat in moved or ()):
            self._hook()
            for flat in moved or ():
                flat.adopt()
            return
        self._ids = ids
        self.layout += 1
        self._to_spare = frozenset()
        self._lending.forget()
        self.flats = []
        for optimizer, group, members in plan:
            rule = rule_of_class(optimizer)
            assert rule is not None  # noqa: S101 -- looked at before this class was chosen
            dtype, wide = members[0].dtype, self._accumulate_in
            sums_in = wide if wide is not None and wide.itemsize > dtype.itemsize else dtype
            self.flats.append(Flat(optimizer, group, members, rule=rule, gradient_type=sums_in))
        self._hook()

    def _hook(self) -> None:
        """Note which parameters a backward reaches."""
        note = NoteReached(self._reached)
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
        return not self._widened and not any(map(is_watched, self.members))

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

    def narrow(self) -> None:
        """Get ready for the optimizer's own step: no gradient where no backward has come."""
        super().narrow()
        grads.clear(p for p in self.members if id(p) not in self._reached.ids)

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
            self._lending.lead(self.flats, self._held, self._reached)
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
        self._lending.take_back()
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


def _kinds_of(optimizer: Optimizer) -> Iterator[tuple[Optimizer, dict[str, Any], list[Tensor]]]:
    """Yield the parameters of an optimizer that one flat buffer can hold, with their group."""
    for group in optimizer.param_groups:
        kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for parameter in dict.fromkeys(group["params"]):
            kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        for members in kinds.values():
            yield optimizer, group, members
