"""How long a schedule is, and what it counts."""

from __future__ import annotations

from typing import Any

_LENGTHS = {
    "CosineAnnealingLR": "T_max",
    "OneCycleLR": "total_steps",
    "PolynomialLR": "total_iters",
}
"""Schedules that come to an end, and what they call it. A warm-up ends as well, and is outlived."""


def is_outlived(scheduler: Any, lengths: set[int]) -> bool:
    """Say whether a scheduler is stepped beyond its end: then its length was not meant in steps.

    `lengths` are those of the loaders: a schedule that is as long as an epoch, or several, counts
    batches and begins again.
    """
    length = getattr(scheduler, _LENGTHS.get(type(scheduler).__name__, ""), None)
    if not isinstance(length, int) or length < 1:
        return False
    if any(each > 1 and length % each == 0 for each in lengths):
        return False
    return bool(scheduler.last_epoch + 1 > length)
