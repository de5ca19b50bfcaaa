"""Boxes in an image: whether patches are together all of it."""

from __future__ import annotations

from itertools import combinations, pairwise
from math import prod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Box: TypeAlias = "tuple[tuple[int, int], ...]"
"""Where a patch begins and ends, in each dimension."""
MOST = 64


def are_all(boxes: Sequence[Box], whole: Sequence[int]) -> bool:
    """Say whether boxes are together a whole image: each pixel in one, or a grid that overlaps.

    Other boxes that overlap, as five crops do, are chosen for what is in them.

    >>> left, middle, right = ((0, 8), (0, 4)), ((0, 8), (2, 6)), ((0, 8), (4, 8))
    >>> are_all([left, right], (8, 8)), are_all([left, middle, right], (8, 8))
    (True, True)
    >>> are_all([left, middle], (8, 8)), are_all([left, right, right], (8, 8))
    (False, False)
    """
    if not 1 < len(boxes) <= MOST:
        return False
    if sum(prod(end - at for at, end in box) for box in boxes) == prod(whole):
        return not any(_meet(one, other) for one, other in combinations(boxes, 2))
    return is_grid(boxes, whole)


def _meet(one: Box, other: Box) -> bool:
    return all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True))


def is_grid(boxes: Sequence[Box], whole: Sequence[int]) -> bool:
    """Say whether boxes of one size stand at every crossing of a grid that leaves nothing out.

    >>> is_grid([((at, at + 1),) for at in range(100)], (100,))
    True
    """
    if len({tuple(end - at for at, end in box) for box in boxes}) > 1 or len({*boxes}) < len(boxes):
        return False
    spans = [sorted({box[dim] for box in boxes}) for dim in range(len(whole))]
    return prod(map(len, spans)) == len(boxes) and all(
        line[0][0] == 0
        and line[-1][1] == size
        and all(after[0] <= before[1] for before, after in pairwise(line))
        for line, size in zip(spans, whole, strict=True)
    )
