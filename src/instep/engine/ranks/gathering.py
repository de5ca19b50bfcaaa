"""Tensors of all ranks, of which each has its own number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from instep.engine.ranks.headers import agreed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.engine.ranks.headers import Said

Described = list[Any]
"""The shape of a tensor, and the name of its type."""


def gather_rows(own: Tensor, group: Any) -> list[Tensor]:
    """Return the tensors of all ranks, in their order; they differ in their first dimension only.

    Shorter ones travel padded to the longest, which every transport can do.
    """
    import torch.distributed as dist  # noqa: PLC0415 -- in use already

    world = group.size()
    count = torch.tensor([own.shape[0]], device=own.device)
    counts = [torch.empty_like(count) for _ in range(world)]
    dist.all_gather(counts, count, group=group)
    sizes = [int(each) for each in counts]
    longest = max(sizes)
    if not longest:
        return [own] * world
    return [
        found[:size] for found, size in zip(gather_padded(own, longest, group), sizes, strict=True)
    ]


def gather_padded(own: Tensor, longest: int, group: Any) -> list[Tensor]:
    """Gather tensors that are first padded to the same number of rows."""
    import torch.distributed as dist  # noqa: PLC0415

    padded = own.new_zeros((longest, *own.shape[1:]))
    padded[: own.shape[0]] = own.detach()
    # Truth values are no numbers to every transport.
    is_bool = padded.dtype is torch.bool
    sent = padded.to(torch.uint8) if is_bool else padded
    found = [torch.empty_like(sent) for _ in range(group.size())]
    dist.all_gather(found, sent, group=group)
    return [each.to(torch.bool) for each in found] if is_bool else found


Link = tuple[Tensor, Tensor]
"""A representation with its graph, and what stands in for it in the loss."""


class Gathered(NamedTuple):
    """The representations of all ranks, and how a loss on them is backpropagated on this one."""

    leaves: list[Tensor]
    links: list[Link]
    """Empty on the rank whose backward goes all the way through the loss."""

    def through(self, loss: Tensor) -> Tensor:
        """Return the same loss, whose backward reaches nothing but this rank's representations."""
        if not self.links:
            return loss
        found = torch.autograd.grad(
            loss, [stand_in for _, stand_in in self.links], retain_graph=True, allow_unused=True
        )
        pairs = zip(self.links, found, strict=True)
        products = [leaf * (0.0 if g is None else g) for (leaf, _), g in pairs]
        attached = torch.stack([product.sum().to(loss.dtype) for product in products]).sum()
        return loss.detach() + (attached - attached.detach())


def linked(own: Sequence[Tensor]) -> list[Link]:
    """Return stand-ins for representations: the same values, at the start of a graph."""
    return [(leaf, leaf.detach().requires_grad_() if leaf.requires_grad else leaf) for leaf in own]


def describe(leaves: Sequence[Tensor]) -> list[Described]:
    """Write down what tensors look like."""
    return [[list(leaf.shape), str(leaf.dtype).removeprefix("torch.")] for leaf in leaves]


def representations_of_all(
    own: Sequence[Tensor],
    heard: Sequence[Said],
    *,
    rank: int,
    group: Any,
    device: torch.device,
    summed: bool,
) -> list[Tensor]:
    """Put the representations of all ranks together; this rank's own keep their graph.

    A rank without samples has none, and takes part with no rows. The loss is the same on every
    rank, and its gradient is taken with regard to the own rows: the sum over ranks is the whole.
    """
    described = [said.shapes for said in heard]
    first = _require_alike(described, summed=summed)
    whole: list[Tensor] = []
    for index, (shape, name) in enumerate(first):
        sizes = [each[index][0][0] if each and not summed else len(each) > 0 for each in described]
        dtype = getattr(torch, name)
        mine = own[index] if own else torch.zeros((0, *shape[1:]), dtype=dtype, device=device)
        if summed:
            sent = own[index] if own else torch.zeros(shape, dtype=dtype, device=device)
            parts = gather_padded(sent[None], 1, group)
            others = [part[0] for at, part in enumerate(parts) if at != rank and sizes[at]]
            whole.append(sum(others, mine) if own else sum(others[1:], others[0]))
            continue
        parts = gather_padded(mine, max(sizes), group)
        rows = [part[:size] for part, size in zip(parts, sizes, strict=True)]
        if own:
            rows[rank] = mine
        whole.append(torch.cat(rows))
    return whole


def _require_alike(described: Sequence[Sequence[Described]], *, summed: bool) -> list[Described]:
    """Return what the representations look like, the same on all ranks that have any."""
    having = [list(each) for each in described if each]
    kept = 0 if summed else 1
    for rank, each in enumerate(described):
        if each and [[s[kept:], d] for s, d in each] != [[s[kept:], d] for s, d in having[0]]:
            raise agreed(
                f"rank {rank} has representations of other shapes or types than the first.",
                why=f"{list(each)} and {having[0]} do not fit together along their samples. The "
                "window was thrown away.",
                fix="return tensors with one row per sample, otherwise of the same shape on every "
                "rank and for every batch.",
                more="two-pass",
            )
        if each and not summed and any(not shape for shape, _ in each):
            raise agreed(
                "encode returned a tensor without rows, and gather=True.",
                why="the representations of the ranks are put together along their samples. The "
                "window was thrown away.",
                fix="return one row per sample.",
                more="two-pass",
            )
    return having[0] if having else []
