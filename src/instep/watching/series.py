"""Numbers of a job by update, in bounded memory: long runs are thinned out, never cut off."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

from instep.trace.updates import RAISED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from instep.trace import Event

MOST_POINTS = 4096
MOST_FIRST, MOST_LAST = 4_000, 20_000
"""Moments that are kept: of a job's beginning, and of its end."""
MOST_OPENED = 256


class Line:
    """One number over time. When there are too many points, every other one is left out.

    >>> line = Line()
    >>> for update in range(10_000):
    ...     line.add(update, 0.1 * update, float(update))
    >>> len(line) <= MOST_POINTS, list(line)[0], list(line)[-1][0] > 9_990
    (True, (0, 0.0, 0.0), True)
    """

    def __init__(self) -> None:
        self._points: list[tuple[int, float, float]] = []
        self._stride = 1
        self._seen = 0
        self._last: tuple[int, float, float] | None = None

    def add(self, update: int, time: float, value: float) -> None:
        """Take a point."""
        self._last = (update, time, value)
        if self._seen % self._stride == 0:
            self._points.append(self._last)
            if len(self._points) >= MOST_POINTS:
                del self._points[1::2]
                self._stride *= 2
        self._seen += 1

    def __iter__(self) -> Iterator[tuple[int, float, float]]:
        yield from self._points
        if self._last is not None and (not self._points or self._points[-1] != self._last):
            yield self._last

    def __len__(self) -> int:
        return len(self._points)

    @property
    def last(self) -> tuple[int, float, float] | None:
        """The latest point."""
        return self._last


class Series:
    """What a report draws: lines by name, and moments with their time."""

    def __init__(self) -> None:
        self.began = perf_counter()
        self.lines: dict[str, Line] = {}
        self.updates: dict[str, int] = {}
        """By optimizer."""
        self.made = 0
        """Those of all optimizers together."""
        self.skipped: dict[str, int] = {}
        self.opened: list[tuple[float, Event]] = []
        """Moments that were not sorted yet: that takes less time for many at once."""
        # These, too, by the clock.
        self._first: list[tuple[float, Event]] = []
        self._latest: deque[tuple[float, Event]] = deque(maxlen=MOST_LAST)
        self._left_out = 0
        self.told: Callable[[str, str, int, float], object] | None = None
        """Called with every point: its line, the optimizer, the update and the value."""

    def now(self) -> float:
        """Return the seconds since the job began."""
        return perf_counter() - self.began

    def moment(self, event: Event) -> None:
        """Take note of when an event happened."""
        self.opened.append((perf_counter(), event))
        if len(self.opened) >= MOST_OPENED:
            self.sort()

    def sort(self) -> None:
        """Put moments where they belong: the first, the latest, or nowhere."""
        moments = self.opened
        room = MOST_FIRST - len(self._first)
        if room > 0:
            self._first += moments[:room]
            moments = moments[room:]
        self._left_out += max(0, len(self._latest) + len(moments) - MOST_LAST)
        self._latest.extend(moments)
        self.opened.clear()

    @property
    def first(self) -> list[tuple[float, Event]]:
        """The moments of a job's beginning: seconds since then, and what happened."""
        self.sort()
        return self._since_began(self._first)

    @property
    def latest(self) -> list[tuple[float, Event]]:
        """The latest moments that are not among the first."""
        self.sort()
        return self._since_began(self._latest)

    @property
    def left_out(self) -> int:
        """Moments between the first and the latest that are not kept."""
        self.sort()
        return self._left_out

    def _since_began(self, moments: Iterable[tuple[float, Event]]) -> list[tuple[float, Event]]:
        return [(time - self.began, event) for time, event in moments]

    def point(self, name: str, value: float, *, optimizer: str) -> None:
        """Add a point to the line of a name: "loss", "grad_norm", "lr", ..."""
        key = f"{name}/{optimizer}"
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = Line()
        update = self.updates.get(optimizer, 0)
        line.add(update, self.now(), value)
        if self.told is not None:
            self.told(name, optimizer, update, value)

    def updated(self, optimizer: str, skipped: str | None) -> int:
        """Count an update, or one that was skipped; return how many there were.

        One that raised is none, and neither was it skipped.
        """
        if skipped == RAISED:
            return self.updates.setdefault(optimizer, 0)
        self.updates[optimizer] = count = self.updates.get(optimizer, 0) + 1
        self.made += 1
        if skipped is not None:
            self.skipped[optimizer] = missed = self.skipped.get(optimizer, 0) + 1
            self.point("skipped", float(missed), optimizer=optimizer)
        return count
