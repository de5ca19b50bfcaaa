"""Where a job is to fail: the n-th thing that it does in one phase of its work."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

PHASES = ("data", "forward", "backward", "close", "save", "load")
"""And "disk": what is done to it, whatever the phase."""


@dataclass(frozen=True)
class Plan:
    """Fail at the n-th operation of a phase, counted from 0 in each process.

    >>> Plan.parse("backward:17"), str(Plan("save", 3))
    (Plan(phase='backward', at=17), 'save:3')
    """

    phase: str
    at: int

    @staticmethod
    def parse(text: str) -> Plan | None:
        """Read a plan; nothing is none."""
        if not text:
            return None
        phase, at = text.split(":")
        assert phase in PHASES, text
        return Plan(phase, int(at))

    def __str__(self) -> str:
        return f"{self.phase}:{self.at}"


def drawn(dice: random.Random, counts: Mapping[str, int], *, reach: float = 1.0) -> Plan:
    """Draw a place among those that a whole run has, or in the first part of them."""
    phase = dice.choice([phase for phase in PHASES if counts.get(phase)])
    return Plan(phase, dice.randrange(max(1, round(counts[phase] * reach))))
