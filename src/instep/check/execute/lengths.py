"""How long loaders are, so that a few batches show what many would."""

from __future__ import annotations

MOST_EVERY = 64
"""Windows of more micro-batches than this are not followed to their end."""


class Lengths:
    """How long loaders are: long enough that a gate's last window is neither full nor single.

    >>> lengths = Lengths()
    >>> lengths.need(4), lengths.length, lengths.like(1000)
    (True, 10, 12)
    """

    def __init__(self) -> None:
        self.moduli: set[int] = set()
        self.length = 8
        self.shift = 0

    def short(self) -> int:
        """Return how many iterations stand for a loop whose length is not known."""
        return self.length + self.shift

    def need(self, every: int) -> bool:
        """Take note of a gate's number; true if loaders must become longer for it."""
        if every in self.moduli or not 2 <= every <= MOST_EVERY:
            return False
        self.moduli.add(every)
        old = self.length
        self.length = self._fit(max(8, 2 * max(self.moduli) + 2))
        return self.length != old

    def _fit(self, least: int) -> int:
        """Return the shortest length from `least` on that exposes the last window."""
        length = least
        for _ in range(200):
            if all(length % n > 1 for n in self.moduli if n > 2):
                break
            length += 1
        return length

    def like(self, literal: int) -> int:
        """Return a short length whose windows end as those of a long one would."""
        if literal <= self.length + 4:
            return literal
        for length in range(self.length, self.length + 400):
            if all(length % n == literal % n for n in self.moduli):
                return length
        return self.length
