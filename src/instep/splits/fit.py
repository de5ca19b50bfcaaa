"""How many samples fit: a line through measured memory, and what out of memory teaches.

Plain numbers only; `engine.auto` measures and acts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# What a line through two points cannot know: fragments, workspaces, a batch a little larger.
MARGIN = 0.08
# Windows that must fit before a size that did not is tried again; doubled each time it fails.
PATIENCE = 32


def probe_sizes(samples: int, smallest: int = 1) -> tuple[int, ...]:
    """Return the sizes of a window's first pieces, by which the others are chosen.

    The first is there because it makes the gradients and whatever else is made once; the others
    are measured. No piece is smaller than `smallest`, 1 or 2, and no rest.

    >>> probe_sizes(64), probe_sizes(5), probe_sizes(3), probe_sizes(1)
    ((1, 2, 4), (1, 1, 2), (1, 1), ())
    >>> probe_sizes(64, 2), probe_sizes(9, 2), probe_sizes(5, 2), probe_sizes(3, 2)
    ((2, 2, 4), (2, 2, 5), (2, 3), ())
    """
    if smallest == 1:
        table: tuple[tuple[int, tuple[int, ...]], ...] = (
            (7, (1, 2, 4)),
            (4, (1, 1, 2)),
            (2, (1, 1)),
        )
    else:
        table = ((8, (2, 2, 4)), (4, (2, 2)))
    for enough, sizes in table:
        if samples >= enough:
            rest = samples - sum(sizes)
            return (*sizes[:-1], sizes[-1] + rest) if 0 < rest < smallest else sizes
    return ()


def balanced_sizes(samples: int, largest: int) -> list[int]:
    """Return the fewest pieces none of which is larger, all about as large as each other.

    >>> balanced_sizes(9, 8), balanced_sizes(9, 3), balanced_sizes(0, 3)
    ([5, 4], [3, 3, 3], [])
    """
    pieces = -(-samples // largest)
    size, larger = divmod(samples, max(pieces, 1))
    return [size + 1] * larger + [size] * (pieces - larger)


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes that a piece needs beyond what is held anyway: a part of its own, and per sample."""

    fixed: float
    per_sample: float

    def needs(self, samples: int) -> float:
        """Return the bytes for a piece of so many samples."""
        return self.fixed + self.per_sample * samples

    def fits(self, room: float) -> int:
        """Return the largest piece for so many bytes; at least one sample, which may not fit.

        >>> Line(fixed=10, per_sample=5).fits(40), Line(fixed=10, per_sample=5).fits(3)
        (6, 1)
        """
        if self.per_sample <= 0:
            return 1 if room < self.fixed else _MANY
        return min(max(math.floor((room - self.fixed) / self.per_sample), 1), _MANY)


_MANY = 2**31


def line_through(points: Sequence[tuple[int, float]]) -> Line:
    """Return the line through (samples, bytes) of the probes; with one point, through zero.

    >>> line_through([(2, 30.0), (4, 50.0)])
    Line(fixed=10.0, per_sample=10.0)
    >>> line_through([(2, 30.0)])
    Line(fixed=0.0, per_sample=15.0)
    """
    many, most = points[-1]
    few, least = points[0]
    if few < many and most > least:
        slope = (most - least) / (many - few)
        if slope * few <= least:
            return Line(least - slope * few, slope)
    # One size only, or less memory for more samples: everything counts as the samples' own.
    return Line(0.0, most / many)


def next_probe(points: Sequence[tuple[int, float]], room: float, rest: int, smallest: int) -> int:
    """Return the size of one more probe: twice the last one, as long as that fits; else 0.

    The memory of small pieces is that of the weights' gradients, and hardly grows; only later the
    activations take over. So a line is trusted for twice the size, not for a hundred times.

    >>> next_probe([(2, 30.0), (4, 50.0)], room=1000.0, rest=60, smallest=1)
    8
    >>> next_probe([(2, 30.0), (4, 50.0)], room=55.0, rest=60, smallest=1)
    0
    """
    last = points[-1][0]
    size = min(2 * last, line_through(points[-2:]).fits(room), rest)
    if 0 < rest - size < smallest:
        size -= 1
    return size if size > last else 0


@dataclass(frozen=True, slots=True)
class Fit:
    """The size in use for batches of one shape.

    >>> fit = Fit(16).after_failure(16)
    >>> fit.size, fit.failed
    (8, 16)
    >>> for _ in range(PATIENCE): fit = fit.after_success()
    >>> fit.size
    12
    >>> fit.after_failure(12).size
    8
    """

    size: int
    line: Line | None = None
    failed: int | None = None
    """The smallest size that ran out of memory, until a piece of that size fits."""
    goal: int = 0
    """The largest size that ran out of memory; it is grown back to."""
    fitted: int = 0
    """The largest size that a window was done with since it failed; 0: none yet."""
    good: int = 0
    patience: int = PATIENCE

    @property
    def is_unmeasured(self) -> bool:
        """Whether it is only what was left of a size that failed, and has grown back to it."""
        return self.line is None and self.failed is None

    def after_failure(self, size: int) -> Fit:
        """Return the next attempt: what fitted before, or half."""
        again = self.failed is not None and size > self.fitted > 0
        smaller = self.fitted if again else max(size // 2, 1)
        return replace(
            self,
            size=smaller,
            failed=size if size > 1 else None,
            goal=max(self.goal, size),
            fitted=min(self.fitted, smaller),
            good=0,
            patience=min(2 * self.patience, 2**20) if again else self.patience,
        )

    def after_success(self) -> Fit:
        """Return the size of the next window: larger, when enough of them have fitted."""
        failed = self.failed
        if failed is None:
            return self
        fitted = max(self.fitted, self.size)
        if self.size >= failed:
            further = min(self.goal, 2 * failed) if self.goal > failed else None
            return replace(self, failed=further, fitted=fitted, good=0)
        if self.good + 1 < self.patience:
            return replace(self, fitted=fitted, good=self.good + 1)
        # Halfway, then all of it: a try that fails costs one replay, and is tried more rarely.
        near = failed - self.size <= failed // 4
        larger = failed if near else (self.size + failed + 1) // 2
        return replace(self, size=larger, fitted=fitted, good=0)

    def within(self, room: float) -> Fit:
        """Return it made smaller, where the measured line says that its size will not fit."""
        if self.line is None or self.line.needs(self.size) <= room:
            return self
        smaller = min(self.size, self.line.fits(room))
        if smaller == self.size:
            return self
        failed, goal = self.failed or self.size, max(self.goal, self.size)
        return replace(self, size=smaller, failed=failed, goal=goal, good=0)
