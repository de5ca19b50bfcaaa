"""Means: a loss may say itself that it is no mean over the items that were declared.

`cross_entropy` keeps what it has divided by for its backward: the targets that are not ignored, or
the sum of their weights. If that is not the same per item in every piece of a window, the pieces
are weighed wrongly. It also keeps whether it is a sum. Nothing is guessed: a loss that went through
anything else afterwards is not looked at.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from typing import TYPE_CHECKING

import torch

from instep.errors import four_lines, warn
from instep.trace.saved import saved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from torch.optim import Optimizer

NODES = ("NllLossBackward0", "NllLoss2DBackward0")
MEAN, SUM = 1, 2
"""How torch numbers reduction="mean" and reduction="sum"."""
WINDOWS = 4
"""How many windows are looked at."""
CLOSE = 1e-4
TYPES = (torch.float32, torch.float64)
"""It is counted in the type of the loss, and narrower ones do not count far."""

_looked: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()


class Means:
    """What the losses of one window are means over; a warning if they are not weighed so."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._first: dict[str, float] = {}
        self.is_told = True
        """Whether it is the user who says how many items there are, and not the batch."""
        self.is_returned = False
        """Whether a loss function returns them, and there is no call of `backward` to change."""

    @contextlib.contextmanager
    def returned(self, *, is_told: bool) -> Iterator[None]:
        """Look at a loss that a loss function has returned; a `backward` by hand may follow."""
        self.is_returned, self.is_told = True, is_told
        try:
            yield
        finally:
            self.is_returned, self.is_told = False, True

    @classmethod
    def of(cls, optimizer: Optimizer) -> Means | None:
        """Return one for a new window; None if enough of them were looked at."""
        seen = _looked.get(optimizer, 0)
        if seen >= WINDOWS:
            return None
        _looked[optimizer] = seen + 1
        return cls(optimizer)

    def note(self, term: str, loss: Tensor, items: float | Tensor, *, is_sum: bool) -> None:
        """Look at a loss before its backward; on the host only, where it is free."""
        if not loss.is_cpu or loss.dtype not in TYPES or _looked.get(self._optimizer) == _SAID:
            return
        node = loss.grad_fn
        reduction = getattr(node, "_saved_reduction", None)
        if reduction not in (MEAN, SUM):
            return
        if isinstance(items, torch.Tensor) and not items.is_cpu:
            return
        count = float(items)
        if not 0 < count < math.inf:
            return  # nothing, or what the close refuses
        if (reduction == SUM) != is_sum:
            if count > 1:
                self._say(_other_reduction(count, is_sum=is_sum, is_returned=self.is_returned))
        elif reduction == MEAN:
            total = None
            if type(node).__name__ in NODES:
                total = saved(node, "total_weight")
                if total is None:
                    return  # whoever has packed it (a checkpoint, offloading) may unpack only once
            self._compare(term, count, None if total is None else float(total))

    def _compare(self, term: str, count: float, total: float | None) -> None:
        """Look at a count beside what its mean was divided by; None is a whole number."""
        if self.is_returned and self.is_told and count % 1:
            # A metric, most likely; sums of the weights of classes have fractions, too.
            if total is None or abs(total - count) > CLOSE * max(total, count):
                self._say(_fraction(count))
        elif total is not None:
            share = total / count
            first = self._first.setdefault(term, share)
            if abs(share - first) > CLOSE * max(share, first):
                told = _returned if self.is_returned else _declared
                self._say((told if self.is_told else _bare)(first, share))

    def _say(self, text: str) -> None:
        leave_alone(self._optimizer)
        warn(text)


_SAID = WINDOWS + 1


def leave_alone(optimizer: Optimizer) -> None:
    """Say nothing (more) about an optimizer's windows: `verify` tells in its own words."""
    _looked[optimizer] = _SAID


def _bare(one: float, other: float) -> str:
    return four_lines(
        "the loss function returns a mean without its items, and it is not one over samples.",
        why=f"its cross_entropy divides by {one:.3g} per item in one piece and by {other:.3g} in "
        "another (ignored targets, or weights of classes), so that pieces do not count as in the "
        "whole batch. (Said once.)",
        fix="return (loss, items) with what it divides by: `return loss, (targets != -100).sum()`.",
        more="items",
    )


def _declared(one: float, other: float) -> str:
    return _other_items(
        one,
        other,
        "pass what it divides by: `items=(targets != -100).sum()`, or the sum of the weights.",
    )


def _returned(one: float, other: float) -> str:
    return _other_items(
        one,
        other,
        "return what it divides by: `return loss, (targets != -100).sum()`, or the sum of the "
        "weights.",
    )


def _other_items(one: float, other: float, fix: str) -> str:
    return four_lines(
        "items is not how many items this loss is a mean of.",
        why=f"its cross_entropy divides by {one:.3g} per item in one piece of a window and by "
        f"{other:.3g} in another (ignored targets, or weights of classes), so that pieces do not "
        "count as in the whole batch. (Said once.)",
        fix=fix,
        more="items",
    )


def _fraction(count: float) -> str:
    return four_lines(
        f"the loss function returned {count:.6g} items, which is not what its loss divides by.",
        why="what is returned beside the loss is how many samples, tokens or pixels it is a mean "
        "of, and pieces are weighed by it; a metric is no such number. (Said once.)",
        fix="return (loss, items), or the loss alone, and keep metrics elsewhere: in a list, say.",
        more="items",
    )


def _other_reduction(count: float, *, is_sum: bool, is_returned: bool) -> str:
    if is_sum:
        return four_lines(
            f"the loss of {count:g} items is a mean, and was declared as their sum.",
            why="a sum is divided by the items of the window, and this mean was divided by its own "
            "before. (Said once.)",
            fix='leave out reduction="sum" of backward, or compute the loss with it.',
            more="loss",
        )
    return four_lines(
        f"the loss of {count:g} items is their sum, and was declared as a mean.",
        why="a mean is multiplied by its items before those of the window are added up, and this "
        f"sum would be weighed {count:g} times too much. (Said once.)",
        fix="return the mean, or (loss / items, items) with how many items were added up."
        if is_returned
        else 'pass reduction="sum" to backward as well, or compute the loss as a mean.',
        more="loss",
    )
