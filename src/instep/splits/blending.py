"""Windows that overlap, and weights by which what is made of them is blended: plain numbers.

Along each axis the weights of all windows that see a pixel sum to one, and so do their products
over the axes. Nothing has to be divided at the end, and no second image of weights is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.splits.reach import Range

Blend = Literal["linear", "gaussian"]
NARROW = 1 / 8
"""The standard deviation of gaussian weights, in windows."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window along one axis of one output."""

    placed: Range
    """Its pixels in the whole output."""
    weights: tuple[float, ...]


def reads(length: int, patch: int, overlap: int, align: int = 1) -> list[Range]:
    """Return the windows that read an axis; the last one is moved inwards, to end where it ends.

    align: where windows may begin. A last window that cannot be moved to the end exactly is longer.

    >>> reads(10, 4, 1)
    [(0, 4), (3, 7), (6, 10)]
    >>> reads(11, 4, 2, align=2)
    [(0, 4), (2, 6), (4, 8), (6, 11)]
    """
    if length <= patch:
        return [(0, length)]
    last = (length - patch) // align * align
    step = max((patch - overlap) // align, 1) * align
    return [*((start, start + patch) for start in range(0, last, step)), (last, length)]


def windows(
    windows_read: Sequence[Range],
    scale: Fraction,
    overlap: int,
    blend: Blend,
    last: int | None = None,
) -> tuple[Window, ...]:
    """Place windows in an output with so many pixels per pixel of the image, and weigh them.

    last: the pixels of the last window, where they do not follow from the scale.
    """
    placed = [(int(scale * a), int(scale * b)) for a, b in windows_read]
    if last is not None:
        placed[-1] = (placed[-1][0], placed[-1][0] + last)
    raw = [_raw(b - a, overlap * scale, blend) for a, b in placed]
    total = [0.0] * placed[-1][1]
    for (start, _), weights in zip(placed, raw, strict=True):
        for index, weight in enumerate(weights, start):
            total[index] += weight
    return tuple(
        Window((a, b), tuple(w / total[index] for index, w in enumerate(weights, a)))
        for (a, b), weights in zip(placed, raw, strict=True)
    )


def _raw(size: int, overlap: Fraction, blend: Blend) -> list[float]:
    """Weigh the middles of pixels: up over the overlap and down again, or as a bell."""
    if blend == "gaussian":
        return [math.exp(-(((i + 0.5) / size - 0.5) ** 2) / (2 * NARROW**2)) for i in range(size)]
    ramp = float(overlap) or 0.5
    return [min(1.0, (min(i, size - 1 - i) + 0.5) / ramp) for i in range(size)]


def scale_of(made: int, read: int) -> Fraction | None:
    """Return the pixels made per pixel read, if windows of it have a certain place: ×k or 1/k."""
    scale = Fraction(made, read)
    return scale if 1 in (scale.numerator, scale.denominator) else None
