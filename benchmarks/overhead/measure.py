"""Timing: round-robin, so that a slow second of the machine hits everybody."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles

from torch import Tensor

Batch = tuple[Tensor, ...]
Pass = Callable[[Sequence[Batch]], None]


@dataclass(frozen=True)
class Contestant:
    """A loop, as a function that trains over the given micro-batches once."""

    name: str
    run: Pass
    # A trainer pays for its setup at every call: two lengths are timed and differenced.
    has_setup: bool = False


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles around it."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Needs two values at least."""
        low, _, high = quantiles(values, n=4)
        return cls(low, median(values), high)

    def text(self, form: str) -> str:
        """`1.05 (1.04 to 1.07)` with `form` as the format of each number."""
        return f"{self.middle:{form}} ({self.low:{form}} to {self.high:{form}})"


Timings = Mapping[str, Sequence[float]]


def measure(
    contestants: Sequence[Contestant], batches: Sequence[Batch], *, rounds: int
) -> dict[str, list[float]]:
    """Seconds per micro-batch of every contestant in every round.

    The order rotates: nobody always runs after the same neighbour's cache misses.
    """
    for contestant in contestants:
        contestant.run(batches)
    timings: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for turn in range(rounds):
        shift = turn % len(contestants)
        with _no_collections():
            for contestant in (*contestants[shift:], *contestants[:shift]):
                timings[contestant.name].append(_seconds_per_micro_batch(contestant, batches))
    return timings


def ratios(timings: Timings, name: str, baseline: str) -> Spread:
    """How many times the baseline, per round."""
    return Spread.of([a / b for a, b in _pairs(timings, name, baseline)])


def differences(timings: Timings, name: str, baseline: str) -> Spread:
    """Microseconds per micro-batch over the baseline, per round."""
    return Spread.of([(a - b) * 1e6 for a, b in _pairs(timings, name, baseline)])


def split_costs(
    short: Sequence[float], long: Sequence[float], sizes: tuple[int, int]
) -> tuple[Spread, Spread]:
    """The cost of a micro-batch alone and of a close, from overheads at two window sizes.

    overhead(size) = micro_batch + close / size, solved in every round.
    """
    small, large = sizes
    closes = [(a - b) / (1 / small - 1 / large) for a, b in zip(short, long, strict=True)]
    micros = [b - close / large for b, close in zip(long, closes, strict=True)]
    return Spread.of(micros), Spread.of(closes)


def per_round_microseconds(timings: Timings, name: str, baseline: str) -> list[float]:
    """The differences themselves, for further arithmetic."""
    return [(a - b) * 1e6 for a, b in _pairs(timings, name, baseline)]


def _pairs(timings: Timings, name: str, baseline: str) -> list[tuple[float, float]]:
    return list(zip(timings[name], timings[baseline], strict=True))


def _seconds_per_micro_batch(contestant: Contestant, batches: Sequence[Batch]) -> float:
    if not contestant.has_setup:
        return _seconds(contestant.run, batches) / len(batches)
    half = batches[: len(batches) // 2]
    longer, shorter = _seconds(contestant.run, batches), _seconds(contestant.run, half)
    return (longer - shorter) / (len(batches) - len(half))


def _seconds(run: Pass, batches: Sequence[Batch]) -> float:
    started = time.perf_counter()
    run(batches)
    return time.perf_counter() - started


@contextmanager
def _no_collections() -> Iterator[None]:
    """As timeit does: a collection that falls into one pass says nothing about its loop."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
