"""The recorder: an append-only sequence of events, with the facts beside it."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar, overload

from instep.trace.created import Created, Fact
from instep.trace.events import KINDS, Event

_E = TypeVar("_E", bound=Event)
_CLASSES = frozenset(KINDS.values())  # none of them has subclasses


class Trace:
    """A sequence of events; bounded where `limit` is given, for jobs that run for days.

    A bounded trace keeps the newest `limit` events and counts the others by kind in `dropped`;
    facts are kept for good.

    >>> from instep.trace import Step, Zero
    >>> trace = Trace(limit=2)
    >>> for _ in range(3):
    ...     trace.record(Step("optimizer"))
    ...     trace.record(Zero(("optimizer",)))
    >>> len(trace), dict(trace.dropped), trace.total
    (2, {'step': 2, 'zero': 2}, 6)
    """

    __slots__ = ("_events", "_facts", "_kinds", "dropped")

    def __init__(self, events: Iterable[Event] = (), *, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1 event, not {limit}.")
        self._events: deque[Event] = deque(maxlen=limit)
        self._facts: dict[str, Mapping[str, Fact]] = {}
        self._kinds: dict[type[Event], tuple[Event, ...]] = {}  # what `of` has sorted out
        self.dropped: Counter[str] = Counter()
        if limit is None:
            self._events.extend(events)
            for event in self._events:
                if type(event) is Created:
                    self._learn(event)
        else:
            for event in events:
                self.record(event)

    def record(self, event: Event) -> None:
        """Add an event at the end."""
        events = self._events
        if self._kinds:
            self._kinds.clear()
        if len(events) == events.maxlen:
            self.dropped[events[0].kind] += 1
        events.append(event)
        if isinstance(event, Created):
            self._learn(event)

    def _learn(self, created: Created) -> None:
        self._facts[created.id] = {**created.facts, "role": created.role}

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return self._state() == other._state()

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        dropped = f", {self.dropped.total()} dropped" if self.dropped else ""
        return f"Trace({len(self)} events{dropped})"

    @property
    def limit(self) -> int | None:
        """The most events kept, or None for all of them."""
        return self._events.maxlen

    @property
    def total(self) -> int:
        """Events recorded so far, with those that were dropped."""
        return len(self._events) + self.dropped.total()

    @property
    def facts(self) -> Mapping[str, Mapping[str, Fact]]:
        """What is known about each id: the facts of its newest Created event, and its "role"."""
        return self._facts

    @overload
    def of(self, kind: type[_E]) -> tuple[_E, ...]: ...
    @overload
    def of(self, kind: str) -> tuple[Event, ...]: ...
    def of(self, kind: type[Event] | str) -> tuple[Event, ...]:
        """Return the events of one kind, named by its class or by its name, in order.

        >>> from instep.trace import Step, Zero
        >>> trace = Trace([Zero(("optimizer",)), Step("optimizer")])
        >>> trace.of("step") == trace.of(Step) == (Step("optimizer"),)
        True
        """
        if isinstance(kind, str):
            if kind not in KINDS:
                raise ValueError(f"no kind {kind!r}; there are {', '.join(sorted(KINDS))}.")
            kind = KINDS[kind]
        if kind not in _CLASSES:
            return tuple(event for event in self._events if isinstance(event, kind))
        if not self._kinds:
            self._sort()
        return self._kinds.get(kind, ())

    def kinds(self) -> frozenset[type[Event]]:
        """Return the classes of which there is an event.

        >>> from instep.trace import Step
        >>> [kind.__name__ for kind in Trace([Step("optimizer"), Step("optimizer")]).kinds()]
        ['Step']
        """
        if not self._kinds:
            self._sort()
        return frozenset(self._kinds)

    def _sort(self) -> None:
        """Sort the events by their classes, all at once: rules ask for nearly all of them."""
        kinds: dict[type[Event], list[Event]] = {}
        for event in self._events:
            kinds.setdefault(type(event), []).append(event)
        self._kinds.update((kind, tuple(events)) for kind, events in kinds.items())

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain dicts, a header and then one per event: a file can hold one per line."""
        # Loaded where they are used: most traces are read and thrown away.
        from instep.trace.codec import encode  # noqa: PLC0415
        from instep.trace.header import Header  # noqa: PLC0415

        header = Header(self.limit, self.dropped, self._facts).encode()
        return [header, *map(encode, self._events)]

    @classmethod
    def from_json(cls, data: list[dict[str, Any]]) -> Self:
        """Return the trace that `to_json` wrote this of, or raise TraceFormatError."""
        from instep.trace.codec import decode, refusal  # noqa: PLC0415
        from instep.trace.header import Header  # noqa: PLC0415

        if not isinstance(data, list) or not data:
            raise refusal("it is not a list that starts with a header")
        try:
            header = Header.decode(data[0])
            trace = cls(map(decode, data[1:]), limit=header.limit)
            # After the events, which may have recorded facts of their own.
            trace.dropped, trace._facts = Counter(header.dropped), dict(header.facts)
        except RecursionError:
            raise refusal("it is nested too deeply") from None
        return trace

    def _state(self) -> tuple[object, ...]:
        return list(self._events), self.limit, self.dropped, self._facts
