"""What an open window lends to fused layers: copies of their parameters, and slots to add to."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from instep.fast.copies import Copy
from instep.fast.functions import anchor
from instep.fast.slots import Note, Slot, fill, is_watched, new_slot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from instep.fast.flat import Flat
    from instep.fast.slots import Account

LENT = "_instep_lent"
"""The attribute of a layer that has what it is lent."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Loan(NamedTuple):
    """A parameter's bf16 copy, and the slot of its gradient."""

    parameter: Tensor
    """A layer that has another one now does what it always does."""
    narrow: Tensor
    slot: int
    version: int
    """Of the parameter, when its copy was up to date."""


class Lent:
    """What a layer is lent now. A copy of the layer, or a pickle of it, is lent nothing."""

    def __init__(self, kind: type[nn.Module]) -> None:
        self.kind = kind
        """The layer's class when it was fused. One that is of another now does what that does."""
        self.weight: Loan | None = None
        self.bias: Loan | None = None
        self.anchor: Tensor | None = None

    def __reduce__(self) -> tuple[type[Lent], tuple[type[nn.Module]]]:
        return Lent, (self.kind,)


class Place(NamedTuple):
    """A parameter of a fused layer."""

    layer: nn.Module
    name: str


class Changes:
    """Counts how often models were fused or unfused, so that windows know when to look again."""

    count = 0


def places_of(models: Iterable[nn.Module]) -> dict[int, list[Place]]:
    """Return the fused layers of each parameter, by its id; tied weights have several."""
    found: dict[int, list[Place]] = {}
    for model in models:
        for module in model.modules():
            if LENT in vars(module):
                for name in ("weight", "bias"):
                    parameter = module._parameters.get(name)  # noqa: SLF001 -- not what is computed
                    if parameter is not None:
                        found.setdefault(id(parameter), []).append(Place(module, name))
    return found


class Reached:
    """The parameters that the backwards of a window's active term have reached, by id."""

    def __init__(self) -> None:
        self.ids: set[int] = set()

    def add(self, one: int) -> None:
        """Note a parameter that a fused layer has added to."""
        self.ids.add(one)


class NoteReached(Note):
    """A hook that notes a parameter, and does nothing once those who want to know are gone."""

    def __init__(self, reached: Reached) -> None:
        self._held = weakref.ref(reached)

    def __call__(self, parameter: Tensor) -> None:
        """Note it."""
        reached = self._held()
        if reached is not None:
            reached.ids.add(id(parameter))


class Lending:
    """What the windows of one lane lend, to the fused layers of these models."""

    def __init__(self, account: Account) -> None:
        self.models: Sequence[nn.Module] = ()
        self.slots: dict[int, int] = {}
        """The slot of each parameter, by its id."""
        self._account = account
        self._changes = -1
        self._places: dict[int, list[Place]] = {}
        self._copies: dict[int, Copy] = {}
        self._lent: frozenset[int] = frozenset()
        self._out: list[tuple[Lent, str, Loan]] = []
        self._relied_on: list[Tensor] = []

    def find(self) -> None:
        """Look for fused layers, if any model was fused or unfused since."""
        if self._changes != Changes.count:
            self._changes = Changes.count
            self._places = places_of(self.models)
            self.slots |= {key: new_slot() for key in self._places if key not in self.slots}

    def forget(self) -> None:
        """Look for layers and make copies anew: the buffers are others now."""
        self._copies = {}
        self._changes = -1

    def lend(self, flats: Sequence[Flat], held: Sequence[Tensor], reached: Reached) -> bool:
        """Let layers add to these gradients; return whether others are lent than last time."""
        lent: list[int] = []
        for flat, slots in self._cut(flats, held, reached, self._places.keys()):
            narrow = self._narrow_of(flat) if slots else []
            for index, slot in slots.items():
                key = id(flat.members[index])
                if not is_watched(flat.members[index]):
                    self._lend_one(self._places[key], narrow[index], self.slots[key], slot)
                    lent.append(key)
        self._account.is_lent = bool(lent)
        before, self._lent = self._lent, frozenset(lent)
        return before != self._lent

    def lead(self, flats: Sequence[Flat], held: Sequence[Tensor], reached: Reached) -> None:
        """Let what is lent lead to these gradients; copies and layers stay as they are."""
        for flat, slots in self._cut(flats, held, reached, self._lent):
            for index, slot in slots.items():
                fill(self.slots[id(flat.members[index])], slot)

    def take_back(self) -> None:
        """Let layers do what they always do, and graphs that are left know that it is over."""
        for lent, name, loan in self._out:
            fill(loan.slot, None)
            if getattr(lent, name) is loan:
                setattr(lent, name, None)
        torch.autograd.graph.increment_version(self._relied_on)
        self._out, self._relied_on = [], []
        self._account.is_lent = False

    def _cut(
        self,
        flats: Sequence[Flat],
        held: Sequence[Tensor],
        reached: Reached,
        keys: Collection[int],
    ) -> Iterator[tuple[Flat, dict[int, Slot]]]:
        """Yield each flat buffer with the slots of these parameters, by their places in it."""
        for flat, tensor in zip(flats, held, strict=True):
            is_wide = flat.dtype is torch.float32
            wanted = [i for i, p in enumerate(flat.members) if is_wide and id(p) in keys]
            views = flat.cut(tensor) if wanted and tensor is not flat.gradients else flat.views
            slots = {}
            for index in wanted:
                parameter = flat.members[index]
                note = partial(reached.add, id(parameter))
                slots[index] = Slot(views[index], note, parameter, self._account)
            yield flat, slots

    def _lend_one(self, places: Iterable[Place], narrow: Tensor, number: int, slot: Slot) -> None:
        parameter = slot.parameter
        assert parameter is not None  # noqa: S101 -- of a flat buffer
        fill(number, slot)
        version = parameter._version  # noqa: SLF001 -- torch's own counter
        for layer, name in places:
            lent = vars(layer).get(LENT)
            # A matrix product writes rows; a convolution's gradient is added, however it lies.
            is_writable = slot.gradient.is_contiguous() or isinstance(layer, CONVOLUTIONS)
            if isinstance(lent, Lent) and is_writable:
                loan = Loan(parameter, narrow, number, version)
                setattr(lent, name, loan)
                lent.anchor = anchor(narrow.device)
                self._out.append((lent, name, loan))

    def _narrow_of(self, flat: Flat) -> list[Tensor]:
        known = self._copies.get(id(flat))
        if known is None:
            known = self._copies[id(flat)] = Copy(flat)
        else:
            known.renew()
        self._relied_on.append(known.views[0])
        return known.views
