"""Tensors of all ranks, of which each has its own number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from instep.engine.ranks.headers import agreed
from instep.engine.ranks.wire import all_gather

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.engine.ranks.headers import Said
    from instep.engine.ranks.world import Ranks

SUM = "sum"
"""What a rank says where representations are added up, and not put below each other."""
Described = list[Any]
"""The shape of a tensor, the name of its type, and the kind of device that it is on."""


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """Rows of this rank on their way, and the place for those of all.

    Made before anything is sent, because it allocates. They travel padded to the longest and as
    bytes, which every transport can do: NCCL has no name for many types, and wants equal sizes.
    """

    sent: Tensor
    whole: Tensor
    like: Tensor
    longest: int

    @classmethod
    def of(cls, own: Tensor, longest: int, world: int, device: torch.device) -> Parcel:
        """Pack the rows of this rank, to be sent from a device."""
        padded = own.detach().new_zeros((longest, *own.shape[1:]), device=device)
        padded[: own.shape[0]] = own.detach()
        sent = padded.reshape(-1).view(torch.uint8)
        return cls(sent, sent.new_empty(world * sent.numel()), own.detach(), longest)

    def send(self, group: Any) -> None:
        """Send and receive; every rank comes here, and nothing is allocated."""
        if self.sent.numel():
            all_gather(self.whole, self.sent, group)

    def rows(self, sizes: Sequence[int]) -> list[Tensor]:
        """Return what has come from each rank: so many rows, without what they were padded by."""
        whole = self.whole.view(self.like.dtype).to(self.like.device)
        parts = whole.view(len(sizes), self.longest, *self.like.shape[1:]).unbind()
        return [part[:size] for part, size in zip(parts, sizes, strict=True)]


def gather_rows(own: Tensor, group: Any) -> list[Tensor]:
    """Return the tensors of all ranks, in their order, which differ in their first dimension."""
    world = group.size()
    counts = torch.empty(world, dtype=torch.int64, device=own.device)
    all_gather(counts, counts.new_tensor([own.shape[0]]), group)
    sizes: list[int] = counts.tolist()
    parcel = Parcel.of(own, max(sizes), world, own.device)
    parcel.send(group)
    return parcel.rows(sizes)


Link = tuple[Tensor, Tensor]
"""A representation with its graph, and what stands in for it in the loss."""


class Gathered(NamedTuple):
    """The representations of all ranks, and how a loss on them is backpropagated on this one."""

    leaves: list[Tensor]
    links: list[Link]
    """Empty on the rank whose backward goes all the way through the loss."""
    items: int | None = None
    """The samples of all ranks, if there is a row for each: the loss is the same one on every rank,
    and so must be what it counts."""

    def through(self, loss: Tensor) -> Tensor:
        """Return the same loss, whose backward reaches nothing but this rank's representations."""
        if not self.links:
            return loss
        found = torch.autograd.grad(
            loss, [stand_in for _, stand_in in self.links], retain_graph=True, allow_unused=True
        )
        pairs = zip(self.links, found, strict=True)
        products = [_product(leaf, g) for (leaf, _), g in pairs]
        attached = torch.stack([product.sum().to(loss.dtype) for product in products]).sum()
        return loss.detach() + (attached - attached.detach())


def _product(leaf: Tensor, gradient: Tensor | None) -> Tensor:
    """Return what has this gradient with regard to a leaf, element by element."""
    if gradient is None:
        return leaf.real * 0.0 if leaf.is_complex() else leaf * 0.0
    return (leaf * gradient.conj()).real if leaf.is_complex() else leaf * gradient


def linked(own: Sequence[Tensor]) -> list[Link]:
    """Return stand-ins for representations: the same values, at the start of a graph."""
    return [(leaf, leaf.detach().requires_grad_() if leaf.requires_grad else leaf) for leaf in own]


def describe(leaves: Sequence[Tensor]) -> list[Described]:
    """Write down what tensors look like."""
    return [
        [list(leaf.shape), str(leaf.dtype).removeprefix("torch."), leaf.device.type]
        for leaf in leaves
    ]


class Representations:
    """The representations of all ranks, put together; this rank's own keep their graph.

    A rank without samples has none, and takes part with no rows. The loss is the same on every
    rank, and its gradient is taken with regard to the own rows: the sum over ranks is the whole.
    """

    def __init__(
        self,
        own: Sequence[Tensor],
        heard: Sequence[Said],
        ranks: Ranks,
        *,
        device: torch.device,
        summed: bool,
    ) -> None:
        """Take the memory for all of them; nothing is sent."""
        described = [said.shapes for said in heard]
        self._own, self._ranks, self._summed = own, ranks, summed
        self._sizes: list[list[int]] = []
        self._parcels: list[Parcel] = []
        for index, (shape, name, kind) in enumerate(_require_alike(described, summed=summed)):
            if summed:
                sizes = [int(bool(each)) for each in described]
            else:
                sizes = [each[index][0][0] if each else 0 for each in described]
            start = device if device.type == kind else torch.device(kind)
            if own:
                mine = own[index][None] if summed else own[index]
                start = mine.device if mine.device.type == kind else start
            else:
                rest = shape if summed else shape[1:]
                mine = torch.zeros((0, *rest), dtype=getattr(torch, name), device=start)
            # By what all have heard, so that every rank sends from the same kind of device.
            way = ranks.way_from(start)
            self._sizes.append(sizes)
            self._parcels.append(Parcel.of(mine, max(sizes), ranks.world, way))

    def gather(self) -> list[Tensor]:
        """Send; every rank comes here."""
        for parcel in self._parcels:
            parcel.send(self._ranks.group)
        # What fails from here on keeps nobody waiting.
        pairs = zip(self._parcels, self._sizes, strict=True)
        return [self._joined(i, parcel.rows(sizes)) for i, (parcel, sizes) in enumerate(pairs)]

    def _joined(self, index: int, found: list[Tensor]) -> Tensor:
        if not self._summed:
            if self._own:
                found[self._ranks.rank] = self._own[index]
            return torch.cat(found)
        others = [part[0] for at, part in enumerate(found) if at != self._ranks.rank and len(part)]
        if self._own:
            return sum(others, self._own[index])
        return sum(others[1:], others[0])


def _require_alike(described: Sequence[Sequence[Described]], *, summed: bool) -> list[Described]:
    """Return what the representations look like, the same on all ranks that have any."""
    having = [list(each) for each in described if each]
    kept = 0 if summed else 1
    for rank, each in enumerate(described):
        if each and _kept(each, kept) != _kept(having[0], kept):
            raise agreed(
                f"rank {rank} has representations of other shapes or types than the first.",
                why=f"{list(each)} and {having[0]} do not fit together along their samples. The "
                "window was thrown away.",
                fix="return tensors with one row per sample, otherwise of the same shape on every "
                "rank and for every batch.",
                more="two-pass",
            )
        if each and not summed and any(not shape for shape, *_ in each):
            raise agreed(
                "encode returned a tensor without rows, and gather=True.",
                why="the representations of the ranks are put together along their samples. The "
                "window was thrown away.",
                fix="return one row per sample.",
                more="two-pass",
            )
    return having[0] if having else []


def _kept(described: Sequence[Described], first: int) -> list[Any]:
    """Return what has to be the same on all ranks."""
    return [[shape[first:], name] for shape, name, _ in described]
