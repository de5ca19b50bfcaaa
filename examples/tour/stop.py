"""What a stop of the tour is: a function that prints its part and returns what was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Seen:
    """What a stop leaves for the end of the tour."""

    sentence: str
    pictures: tuple[Path, ...] = ()


Stop = Callable[[Path], Seen]
"""Called with the folder for its pictures."""


class TourError(Exception):
    """A stop did not see what it is there to show."""
