"""What a rule is given: one trace, its windows, and the words to report a mistake with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from instep.rules.finding import Finding, Related, Severity
from instep.trace import Opaque, ScalerUpdate, Step, Unscale, windows
from instep.trace.once import once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from instep.trace import Event, Fact, Trace, WindowRecord


_V = TypeVar("_V")
_SCALED: tuple[type[Step | Unscale | ScalerUpdate], ...] = (Step, Unscale, ScalerUpdate)


class View:
    """One trace as the rules read it. What is computed is computed once for all of them.

    >>> from instep.trace import Backward, Step, Trace
    >>> view = View(Trace([Backward(("sgd",)), Step("sgd"), Backward(("sgd",)), Step("sgd")]))
    >>> [window.carried for window in view.windows["sgd"]]
    [0, 1]
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events: tuple[Event, ...] = tuple(trace)
        self._read: dict[Callable[[View], Any], Any] = {}

    def read(self, ask: Callable[[View], _V]) -> _V:
        """Return what a function reads off the trace; it is asked once for all rules."""
        if ask not in self._read:
            self._read[ask] = ask(self)
        found: _V = self._read[ask]
        return found

    @once
    def kinds(self) -> frozenset[type[Event]]:
        """The kinds of events that there are."""
        return self.trace.kinds()

    @property
    def facts(self) -> Mapping[str, Mapping[str, Fact]]:
        """What is known about each id."""
        return self.trace.facts

    @once
    def windows(self) -> Mapping[str, tuple[WindowRecord, ...]]:
        """The windows of every optimizer, by its id."""
        return windows(self.events)

    @once
    def opaque(self) -> frozenset[str] | None:
        """Optimizers that something unknown happened to; None: all of them."""
        touched: set[str] = set()
        for event in self.trace.of(Opaque):
            if event.optimizers is None:
                return None
            touched.update(event.optimizers)
        return frozenset(touched)

    @once
    def scalers(self) -> frozenset[str]:
        """The ids of all scalers of the trace."""
        made = {id_ for id_, facts in self.facts.items() if facts["role"] == "scaler"}
        used = {e.scaler for kind in _SCALED for e in self.trace.of(kind)}
        return frozenset(made | {id_ for id_ in used if id_ is not None})

    def is_opaque(self, optimizer: str) -> bool:
        """Say whether something unknown happened to an optimizer, anywhere in the trace."""
        return self.opaque is None or optimizer in self.opaque


def spelled(id_: str) -> str:
    """Return an id as the user's source spells it: two of one name differ after a "#".

    >>> spelled("self.optimizer#2")
    'self.optimizer'
    """
    return id_.partition("#")[0]


def report(
    rule: ModuleType,
    event: Event,
    message: str,
    *,
    severity: Severity | None = None,
    related: Iterable[tuple[Event | None, str]] = (),
    evidence: Iterable[Event] = (),
    advice: str | None = None,
) -> Finding | None:
    """Return the finding of a rule at an event; None if nobody knows where the event was caused.

    `related` are other events with what happened there ("cleared here"); those without a place,
    at the finding's own place, or named twice are left out. `evidence` is for the rule's `mend`.
    """
    if event.place is None:
        return None
    shown: dict[object, Related] = {}
    for other, label in related:
        if other is not None and other.place is not None and other.place != event.place:
            shown.setdefault((other.place, label), Related(other.place, label))
    return Finding(
        code=rule.CODE,
        name=rule.NAME,
        severity=rule.SEVERITY if severity is None else severity,
        place=event.place,
        message=message,
        related=tuple(shown.values()),
        advice=advice,
        evidence=(event, *evidence),
    )
