"""How often a run saves itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How often to save.

    >>> Pace(every=10).is_due(updates=9, seconds=1e6), Pace(every=10).is_due(updates=10, seconds=0)
    (False, True)
    >>> Pace(seconds=60.0).is_due(updates=3, seconds=61.0)
    True
    >>> Pace(seconds=60.0).is_due(updates=0, seconds=61.0)
    False
    """

    every: int | None = None
    seconds: float | None = None

    def is_due(self, *, updates: int, seconds: float) -> bool:
        """Whether to save, so many updates and seconds after the last time."""
        if updates < 1:
            return False
        by_count = self.every is not None and updates >= self.every
        return by_count or (self.seconds is not None and seconds >= self.seconds)
