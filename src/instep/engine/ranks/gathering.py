"""Tensors of all ranks, of which each has its own number of rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
