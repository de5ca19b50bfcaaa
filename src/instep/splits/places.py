"""Where random patches lie: every choice as a whole number, no tensors and no random numbers.

A number below a total stands for one position, one block or one image, and each position has as
many numbers as it has weight. So that a choice is uniform needs no statistics: it can be counted.
"""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from instep.splits.tiles import Slices


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions that a patch can have in one image.

    align: positions are multiples of this, where every array of the sample has whole pixels.
    """

    sizes: tuple[int, ...]
    patch: tuple[int, ...]
    align: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """How many positions there are along each axis; one where the image is smaller."""
        axes = zip(self.sizes, self.patch, self.align, strict=True)
        return tuple(max(n - size, 0) // align + 1 for n, size, align in axes)

    @property
    def positions(self) -> int:
        """How many positions there are."""
        return math.prod(self.counts)

    def position(self, number: int) -> tuple[int, ...]:
        """Return where the patch with this number begins.

        >>> layout = Layout((6, 9), (4, 5), (2, 1))
        >>> layout.positions, layout.position(0), layout.position(9)
        (10, (0, 0), (2, 4))
        """
        starts = []
        for count, align in zip(reversed(self.counts), reversed(self.align), strict=True):
            number, index = divmod(number, count)
            starts.append(index * align)
        return tuple(reversed(starts))

    def around(self, pixel: Sequence[int]) -> tuple[int, ...]:
        """Return where the patch begins that has this pixel in its middle, or as near as it can."""
        starts = []
        for axis, at in enumerate(pixel):
            size, align = self.patch[axis], self.align[axis]
            start = (at - size // 2) // align * align
            if at >= start + size:
                # Aligning moved the patch away from its own pixel.
                start += align
            starts.append(min(max(start, 0), (self.counts[axis] - 1) * align))
        return tuple(starts)

    def margin(self, axis: int) -> int:
        """Return how many pixels are missing before an image that is smaller than the patch."""
        missing = max(self.patch[axis] - self.sizes[axis], 0)
        return missing // 2 // self.align[axis] * self.align[axis]


@dataclass(frozen=True, slots=True)
class Ballot:
    """Entries that are drawn in proportion to their weights, which are whole numbers or not."""

    ends: tuple[float, ...]

    @classmethod
    def of(cls, weights: Sequence[float]) -> Ballot:
        """Add up the weights."""
        return cls(tuple(itertools.accumulate(weights)))

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return self.ends[-1] if self.ends else 0

    def at(self, number: float) -> tuple[int, float]:
        """Return the entry for a number below the total, and how far into it the number is.

        >>> [Ballot.of([2, 0, 1]).at(number) for number in range(3)]
        [(0, 0), (0, 1), (2, 0)]
        """
        # Rounding must not draw what has no weight.
        last = bisect.bisect_left(self.ends, self.total)
        entry = min(bisect.bisect_right(self.ends, number), last)
        return entry, number - (self.ends[entry - 1] if entry else 0)

    def draw(self, random: Random) -> tuple[int, float]:
        """Draw an entry."""
        if isinstance(self.total, int):
            return self.at(random.randrange(self.total))
        return self.at(random.random() * self.total)


def blocks(sizes: Sequence[int]) -> Iterator[Slices]:
    """Cut a map into blocks that are read at once: some ten thousands of pixels."""
    side = round(65536 ** (1 / len(sizes)))
    along = [[slice(start, min(start + side, n)) for start in range(0, n, side)] for n in sizes]
    return itertools.product(*along)


def ratios_of(sizes: Sequence[int], first: Sequence[int]) -> tuple[Fraction, ...]:
    """Return an array's pixels per pixel of the first one."""
    return tuple(Fraction(n, m) for n, m in zip(sizes, first, strict=True))


def reflected(length: int, before: int, after: int, pad: str) -> list[int]:
    """Return which pixels stand where, when an axis is continued beyond its ends.

    >>> reflected(3, 2, 3, "reflect"), reflected(3, 2, 3, "edge")
    ([2, 1, 0, 1, 2, 1, 0, 1], [0, 0, 0, 1, 2, 2, 2, 2])
    """
    if pad == "edge" or length == 1:
        return [min(max(index, 0), length - 1) for index in range(-before, length + after)]
    period = 2 * (length - 1)
    return [
        min(index % period, period - index % period) for index in range(-before, length + after)
    ]
