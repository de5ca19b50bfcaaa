"""What failures and checkpoints cost: the best time between two checkpoints, and what is left.

Ranks fail independently, each once in `mtbf` seconds in the mean; one that fails stops the job. It
comes back after `restart` seconds, in which it may fail again, and goes on from the latest
checkpoint. Nothing is saved or computed while a checkpoint is written.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Plant:
    """A job on ranks that fail."""

    ranks: int
    mtbf: float
    """Seconds between two failures of one rank, in the mean."""
    checkpoint: float
    """Seconds that writing one takes."""
    restart: float

    @property
    def between(self) -> float:
        """Seconds between two failures of the job."""
        return self.mtbf / self.ranks


def young(plant: Plant) -> float:
    """Return Young's interval: the seconds of work between two checkpoints, to first order."""
    return math.sqrt(2 * plant.checkpoint * plant.between)


def daly(plant: Plant) -> float:
    """Return Daly's interval, of a higher order."""
    ratio = plant.checkpoint / (2 * plant.between)
    if ratio >= 1:
        return plant.between
    return young(plant) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - plant.checkpoint


def best(plant: Plant) -> float:
    """Return the interval that loses least, of all there are.

    The derivative of the expected time over the work is zero where (1 - u) e^u = e^-c, with u and c
    the interval and the checkpoint in units of the time between failures; found by bisection.
    """
    cost = plant.checkpoint / plant.between
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        # log1p(-u) + u loses no digits where both are small.
        if math.log1p(-middle) + middle > -cost:
            low = middle
        else:
            high = middle
    return low * plant.between


def expected(plant: Plant, work: float) -> float:
    """Return the seconds that a stretch of work and its checkpoint take, failures included.

    Daly's formula, which is exact if failures are memoryless:
    M e^(R/M) (e^((work + C)/M) - 1), with M between failures.
    """
    exponent = (work + plant.checkpoint) / plant.between
    if exponent > 700:
        return math.inf
    again = math.exp(min(plant.restart / plant.between, 700))
    return plant.between * again * math.expm1(exponent)


def useful(plant: Plant, work: float | None = None) -> float:
    """Return the share of the time that is work which stays done."""
    interval = best(plant) if work is None else work
    return interval / expected(plant, interval)


def simulated(plant: Plant, work: float, stretches: int, seed: int) -> tuple[float, float]:
    """Play it: return the mean seconds of a stretch, and the standard error."""
    draw = random.Random(seed)
    taken = [_stretch(plant, work + plant.checkpoint, draw) for _ in range(stretches)]
    mean = sum(taken) / stretches
    spread = sum((each - mean) ** 2 for each in taken) / (stretches - 1)
    return mean, math.sqrt(spread / stretches)


def _stretch(plant: Plant, needed: float, draw: random.Random) -> float:
    """Play one stretch, event by event: work until a failure, restart until it holds, again."""
    clock = 0.0
    while True:
        failure = draw.expovariate(1 / plant.between)
        if failure >= needed:
            return clock + needed
        clock += failure
        while (failure := draw.expovariate(1 / plant.between)) < plant.restart:
            clock += failure
        clock += plant.restart
