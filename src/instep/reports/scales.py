"""Numbers on paper: which range an axis has, where its ticks are, and how a number is written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from instep.reports.record import Point

_WIDE = 50.0
"""Largest over smallest value from which on powers of ten are further apart than pixels."""
BUCKETS = 320
"""Of a line: each keeps its lowest and its highest point, so that no spike is lost."""

MEANS = 80
"""Stretches of a line that a mean is drawn of."""


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from `low` to `high`."""

    low: float
    high: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """Return where a value is, from 0 to 1.

        >>> Scale(1.0, 100.0, is_log=True).at(10.0)
        0.5
        """
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, self.low))
        return (value - low) / (high - low)

    def ticks(self, most: int = 5) -> list[float]:
        """Return round numbers on the axis.

        >>> Scale(0.0, 9.3).ticks(), Scale(0.002, 3.0, is_log=True).ticks()
        ([0.0, 2.0, 4.0, 6.0, 8.0], [0.01, 0.1, 1.0])
        """
        if self.is_log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            every = max(1, math.ceil((last - first + 1) / most))
            return [10.0**power for power in range(first, last + 1, every)]
        step = _round_step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def scale_of(
    values: Iterable[float], *, may_be_log: bool = False, from_zero: bool = False
) -> Scale:
    """Return the axis that shows these values; those that are not finite are left out.

    >>> scale_of([1.0, 1.0])
    Scale(low=0.95, high=1.05, is_log=False)
    >>> scale_of([0.001, 5.0], may_be_log=True).is_log
    True
    """
    finite = [_tame(value) for value in values if math.isfinite(value)]
    if not finite:
        return Scale(0.0, 1.0)
    low, high = min(finite), max(finite)
    positive = [value for value in finite if value > 0]
    if may_be_log and low >= 0 and positive and high / min(positive) > _WIDE:
        return Scale(min(positive) / 1.2, high * 1.2, is_log=True)
    if from_zero:
        low = min(low, 0.0)
    size = max(abs(low), abs(high))
    # Nearer to each other than digits can tell: shown as one and the same.
    is_flat = high - low <= size * 1e-9
    room = (size or 10.0) * 0.05 if is_flat else (high - low) * 0.05
    bottom = low if from_zero and low == 0 else low - room
    return Scale(bottom, high + room)


def _tame(value: float) -> float:
    """Return a number with which arithmetic neither overflows nor comes to nothing."""
    if abs(value) < 1e-200:
        return 0.0
    return min(max(value, -1e200), 1e200)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(
        power * each for each in (1.0, 2.0, 2.5, 5.0, 10.0) if power * each >= rough * 0.999
    )


def thinned(points: Sequence[Point], buckets: int = BUCKETS) -> list[Point]:
    """Return few points that look like all of them: the lowest and highest of every bucket.

    >>> len(thinned([(update, 0.0, float(update % 7)) for update in range(10_000)])) <= 2 * BUCKETS
    True
    """
    if len(points) <= 2 * buckets:
        return list(points)
    kept: list[Point] = []
    for number in range(buckets):
        start = number * len(points) // buckets
        part = range(start, (number + 1) * len(points) // buckets)
        broken = next((at for at in part if not math.isfinite(points[at][2])), None)
        chosen = {
            min(part, key=lambda at: _finite(points[at][2], math.inf)),
            broken if broken is not None else max(part, key=lambda at: points[at][2]),
        }
        kept += [points[at] for at in sorted(chosen)]
    return kept


def averaged(points: Sequence[Point], buckets: int = MEANS) -> list[Point]:
    """Return the mean of the finite values in each of some stretches, at their middles.

    >>> averaged([(1, 0.0, 2.0), (2, 0.0, 4.0), (3, 0.0, 5.0), (4, 0.0, 7.0)], 2)
    [(2, 0.0, 3.0), (4, 0.0, 6.0)]
    """
    made: list[Point] = []
    for number in range(buckets):
        start, end = number * len(points) // buckets, (number + 1) * len(points) // buckets
        values = [value for _, _, value in points[start:end] if math.isfinite(value)]
        if values:
            update, time, _ = points[(start + end) // 2]
            made.append((update, time, math.fsum(value / len(values) for value in values)))
    return made


def _finite(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise


def short(value: float) -> str:
    """Return a number as an axis says it.

    >>> [short(value) for value in (0.0, 0.25, 1500.0, 3e-07, 12_000_000.0, float("nan"))]
    ['0', '0.25', '1,500', '3e-7', '1.2e7', 'nan']
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    digits, _, power = f"{value:.2e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


def span(seconds: float) -> str:
    """Return how long something took, as people say it.

    >>> span(0.0032), span(12.3), span(3725.0)
    ('3.2 ms', '12.3 s', '1 h 2 min')
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    return f"{minutes // 60:,} h {minutes % 60} min"
