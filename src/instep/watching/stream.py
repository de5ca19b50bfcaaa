"""The events of a job, told short: what repeats is kept a few times and then only counted.

A job of a million updates does the same few things over and over. The stream is cut after every
step, and a cut that follows another for the fourth time is dropped, as if the epoch had been
shorter. What is left is a trace of the kind that the checker makes from source: short epochs that
show every window there is.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from typing import TYPE_CHECKING

from instep.trace import Drawn, Forward, Mode, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.trace import Event

REPEATS = 3
"""How often a stretch is kept after the same other one."""
MOST_EVENTS = 50_000
"""Of a trace: whoever does something new all the time is not followed for ever."""
MOST_NUMBERED = 500_000
"""Events of all the stretches that are told apart."""
_MOST_HELD = 4
_LONG = 256
"""Events of one stretch after which repetitions inside it are looked for."""
_IDLE = (Drawn, Forward, Mode)


class Stream:
    """Takes events one by one and keeps a trace of what is new.

    >>> from instep.trace import Backward, Step, Zero
    >>> stream, o = Stream(), ("o",)
    >>> loop = [Zero(o), Backward(o), Step("o")]
    >>> for _ in range(1000):
    ...     for event in loop:
    ...         stream.add(event)
    ...     _ = stream.turn()
    >>> len(stream.trace), stream.events
    (12, 3000)
    """

    def __init__(self) -> None:
        self.trace = Trace()
        self.events = 0
        """All that were taken, kept or not."""
        self.full = False
        self._stretch: list[Event] = []
        self.add = self._stretch.append
        """Take an event. The same happening must be the same object: that is how it is known."""
        self._numbers: dict[bytes, int] = {}  # by the ids of a stretch's events
        self._numbered = 0  # events in all of them
        self._follows: Counter[tuple[int, int]] = Counter()
        self._previous = -1  # number of the latest stretch, kept or not
        self._kept = -1  # of the latest that was kept
        # Stretches since the latest that was kept: the way back to it must be told as well.
        self._held: deque[tuple[int, list[Event]]] = deque(maxlen=_MOST_HELD)
        self._usual: list[Event] | None = None  # the latest stretch, if it is an old story

    @property
    def open(self) -> tuple[Event, ...]:
        """What has happened since the last turn."""
        return tuple(self._stretch)

    def turn(self) -> bool:
        """End a stretch; true if it was new and is kept."""
        stretch = self._stretch
        if not stretch:
            return False
        self.events += len(stretch)
        if stretch == self._usual:
            stretch.clear()
            return False
        stretch = tidied(stretch) if len(stretch) > _LONG else stretch.copy()
        self._stretch.clear()
        number = self._number(stretch)
        pair = (self._previous, number)
        self._previous = number
        if not self.full:
            self._follows[pair] += 1
        old = self.full or self._follows[pair] > REPEATS
        self._usual = stretch if old and pair[0] == number else None
        if old:
            self._held.append((number, stretch))
            return False
        self._bridge()
        self._keep(number, stretch)
        return True

    def _number(self, stretch: list[Event]) -> int:
        """Return the number of a stretch; -3 for all that came too late to be told apart."""
        key = array("Q", map(id, stretch)).tobytes()
        number = self._numbers.get(key)
        if number is None and self.full:
            return -3
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._numbered += len(stretch)
            self.full = self._numbered > MOST_NUMBERED
        return number

    def finish(self) -> None:
        """Keep what is held back: the last thing a job does is worth knowing."""
        self._bridge()
        if self._stretch:
            self._keep(-2, tidied(self._stretch))
            self.events += len(self._stretch)
            self._stretch.clear()

    def _keep(self, number: int, stretch: Iterable[Event]) -> None:
        for event in stretch:
            self.trace.record(event)
        self._kept = number
        self.full = self.full or len(self.trace) >= MOST_EVENTS

    def _bridge(self) -> None:
        """Tell the shortest way from what was kept last to what happened last."""
        held = list(self._held)
        self._held.clear()
        if not held or held[-1][0] == self._kept:
            return
        for first in range(len(held) - 1, -1, -1):
            if (self._kept, held[first][0]) in self._follows:
                break
        for number, stretch in held[first:]:
            self._keep(number, stretch)


def tidied(events: list[Event]) -> list[Event]:
    """Leave out repetitions that no gradient comes from: the batches of a long validation.

    >>> from instep.trace import Drawn, Step
    >>> drawn = Drawn("test")
    >>> len(tidied([drawn] * 1000 + [Step("o")]))
    4
    """
    kept: list[Event] = []
    for event in events:
        kept.append(event)
        for period in (1, 2, 3):
            if _repeats(kept, period):
                del kept[-period:]
                break
    return kept


def _repeats(events: list[Event], period: int) -> bool:
    """Say whether the last few events, all idle, were there three times before."""
    if len(events) < (REPEATS + 1) * period:
        return False
    last = events[-period:]
    if not all(isinstance(event, _IDLE) for event in last):
        return False
    return all(
        events[-(turn + 1) * period + at] is last[at]
        for turn in range(1, REPEATS + 1)
        for at in range(period)
    )
