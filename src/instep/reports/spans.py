"""The windows among the moments of a record: when each began, when it closed, what was in it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from instep.trace import Backward, Step
from instep.trace.plain import dataclass
from instep.trace.updates import RAISED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.reports.record import Moment, Record


@dataclass(frozen=True, slots=True)
class Span:
    """One window in time."""

    optimizer: str
    number: int
    """Of the update that closed it, from 1."""
    begin: float
    end: float
    backwards: int
    skipped: str | None
    """Why its step changed nothing; None: it did."""


@dataclass(slots=True)
class _Open:
    """A window that has not been closed yet."""

    begin: float
    backwards: int = 0


def spans(record: Record) -> list[Span]:
    """Return the windows that were seen whole, by the time they closed.

    A window begins with what came just before its first backward, because the moment of a backward
    is its end. Where moments were left out no window is followed across.

    >>> from instep.reports.record import Owner, Record
    >>> from instep.trace import Backward, Step
    >>> events = (Backward(("o",)), Step("o"))
    >>> moments = ((0.5, 0), (1.0, 0), (1.5, 1), (2.5, 0), (3.0, 1))
    >>> record = Record(title="", optimizers=(Owner("o", updates=2),), events=events, first=moments)
    >>> [(span.number, span.begin, span.end, span.backwards) for span in spans(record)]
    [(1, 0.5, 1.5, 2), (2, 1.5, 3.0, 1)]
    """
    after = () if record.left_out else record.latest
    begun: Counter[str] = Counter()
    found = list(_spans(record, (*record.first, *after), begun))
    if record.left_out:
        # What is left of the count is what was made in between.
        total = {owner.name: owner.updates for owner in record.optimizers}
        steps = Counter(
            event.optimizer or ""
            for _, index in record.latest
            if isinstance(event := record.events[index], Step) and event.skipped != RAISED
        )
        numbers = Counter({name: total.get(name, count) - count for name, count in steps.items()})
        found += _spans(record, record.latest, numbers)
    return found


def _spans(record: Record, moments: Sequence[Moment], numbers: Counter[str]) -> Iterator[Span]:
    opened: dict[str, _Open] = {}
    previous = None
    for time, index in moments:
        event = record.events[index]
        match event:
            case Backward(optimizers=tuple(owners)):
                for owner in owners:
                    window = opened.get(owner)
                    if window is None:
                        begin = time if previous is None else previous
                        window = opened[owner] = _Open(begin)
                    window.backwards += 1
            case Step(optimizer=str(owner)) if event.skipped == RAISED:
                opened.pop(owner, None)  # no update came of it
            case Step(optimizer=str(owner)):
                numbers[owner] += 1
                window = opened.pop(owner, None) or _Open(time)
                number, backwards = numbers[owner], window.backwards
                yield Span(owner, number, window.begin, time, backwards, event.skipped)
        previous = time
