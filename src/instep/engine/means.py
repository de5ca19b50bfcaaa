"""Means: a loss that is returned alone may say itself that it is no mean over samples.

`cross_entropy` keeps what it has divided by for its backward: the targets that are not ignored, or
the sum of their weights. If that is not the same per sample in every piece, the pieces are weighed
wrongly. Nothing is guessed: a loss that went through anything else afterwards is not looked at.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from instep.errors import four_lines, warn
from instep.trace.saved import saved

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

NODES = ("NllLossBackward0", "NllLoss2DBackward0")
MEAN = 1
"""How torch numbers reduction="mean"."""
WINDOWS = 4
"""How many windows are looked at."""
CLOSE = 1e-4
TYPES = (torch.float32, torch.float64)
"""It is counted in the type of the loss, and narrower ones do not count far."""

_looked: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()


class Means:
    """What the bare losses of one window are means over; a warning if they are not weighed so."""

    def __init__(self, optimizer: Optimizer) -> None:
        seen = _looked.get(optimizer, 0)
        self._is_looking = seen < WINDOWS
        if self._is_looking:
            _looked[optimizer] = seen + 1
        self._optimizer = optimizer
        self._first: float | None = None

    def note(self, loss: Tensor, items: int) -> None:
        """Look at the loss of a piece, before its backward; on the host only, where it is free."""
        if not self._is_looking or not items or not loss.is_cpu or loss.dtype not in TYPES:
            return
        node = loss.grad_fn
        if type(node).__name__ not in NODES or getattr(node, "_saved_reduction", None) != MEAN:
            return
        total = saved(node, "total_weight")
        if total is None:
            return  # whoever has packed it (a checkpoint, offloading) may unpack it only once
        share = float(total) / items
        if self._first is None:
            self._first = share
        elif abs(share - self._first) > CLOSE * max(share, self._first):
            self._is_looking = False
            _looked[self._optimizer] = WINDOWS
            warn(_text(self._first, share))


def leave_alone(optimizer: Optimizer) -> None:
    """Say nothing about an optimizer's windows: `verify` tells in its own words."""
    _looked[optimizer] = WINDOWS


def _text(one: float, other: float) -> str:
    return four_lines(
        "the loss function returns a mean without its items, and it is not one over samples.",
        why=f"its cross_entropy divides by {one:.3g} per item in one piece and by {other:.3g} in "
        "another (ignored targets, or weights of classes), so that pieces do not count as in the "
        "whole batch. (Said once.)",
        fix="return (loss, items) with what it divides by: `return loss, (targets != -100).sum()`.",
        more="items",
    )
