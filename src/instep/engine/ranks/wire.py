"""The collective by which ranks hear each other: what all have sent, in one tensor.

An all-gather into a list of tensors would do the same, and with NCCL take memory of its own for
them: a rank that has none left could not say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def begin_all_gather(whole: Tensor, mine: Tensor, group: Any) -> Any:
    """Begin to send, and return what is waited for; all ranks send equally much."""
    import torch.distributed as dist  # noqa: PLC0415 -- in use already

    # Before torch 2.13 it had another name.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, mine, group=group, async_op=True)


def all_gather(whole: Tensor, mine: Tensor, group: Any) -> None:
    """Send, and wait for all ranks."""
    begin_all_gather(whole, mine, group).wait()
