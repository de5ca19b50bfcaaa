"""How long the slowest of many ranks takes, if they are alike and their work is not."""

from __future__ import annotations

import math
import random
from functools import cache

_REACH = 9.0
"""Standard deviations around the mean within which all of it is found."""
_STEPS = 4000


@cache
def expected_maximum(ranks: int) -> float:
    """Return the mean of the largest of so many standard normal numbers.

    The mean of a maximum is the integral of 1 - F(x)^n over x > 0, less that of F(x)^n over x < 0.

    >>> round(expected_maximum(1), 6), round(expected_maximum(2), 6)  # 1 / sqrt(pi)
    (0.0, 0.56419)
    """
    width = 2 * _REACH / _STEPS
    total = 0.0
    for step in range(_STEPS):
        x = -_REACH + (step + 0.5) * width
        below = _normal(x) ** ranks
        total += (1 - below if x > 0 else -below) * width
    return total


def simulated_maximum(ranks: int, rounds: int, seed: int) -> tuple[float, float]:
    """Return the same by drawing numbers, with the standard error of it."""
    draw = random.Random(seed)
    found = [max(draw.gauss(0.0, 1.0) for _ in range(ranks)) for _ in range(rounds)]
    mean = sum(found) / rounds
    spread = sum((each - mean) ** 2 for each in found) / (rounds - 1)
    return mean, math.sqrt(spread / rounds)


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))
