"""Seeds: the gradient that a backward starts from, never the same memory twice.

Autograd may hand the memory of a seed on, up to the gradient of a parameter of one element, where
it would be added to and multiplied. A seed that is used again would then be another number. So each
is one element of a block that is filled at once, and handed out once.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64
VALUES_KEPT = 256


class Seeds:
    """Hands out 0-dim tensors of a value; a block of them costs as much as one."""

    def __init__(self) -> None:
        self._blocks: dict[float, list[Tensor]] = {}

    def take(self, value: float, like: Tensor) -> Tensor:
        """Return a new tensor of this value, with the type and device of `like`."""
        block = self._blocks.get(value)
        if block:
            seed = block.pop()
            if seed.dtype is like.dtype and seed.device == like.device:
                return seed
        if len(self._blocks) >= VALUES_KEPT:
            self._blocks.clear()
        # The first of a value is made alone: counts that never come again would waste a block.
        size = 1 if block is None else BLOCK
        # Through float64, because a loss scale may be too large for a narrow type; as inf it makes
        # the update be skipped and the scale back off.
        wide = torch.float64 if like.device.type != "mps" else torch.float32
        filled = torch.full((size,), value, dtype=wide, device=like.device).to(like.dtype)
        self._blocks[value] = block = list(filled.unbind())
        return block.pop()
