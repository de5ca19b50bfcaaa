"""What all events share: a place, a time, and the optimizers whose window they fall in."""

from typing import ClassVar

from instep.trace.place import Place
from instep.trace.plain import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened, as plain data: things are named by ids, never held.

    A call that a wrapper turned into nothing (a step in the middle of a managed accumulation) is
    not an event. Unknown is None, and a rule stays silent on it.
    """

    kind: ClassVar[str] = "event"

    place: Place | None = None
    time: float | None = None  # seconds on the recorder's monotonic clock; None in source

    def touches(self) -> tuple[str, ...] | None:
        """Return the optimizers whose windows this belongs to; None means all of them."""
        return None


@dataclass(frozen=True, slots=True)
class OnOptimizer(Event):
    """An event that happens to one optimizer; None where it is not known to which."""

    optimizer: str | None

    def touches(self) -> tuple[str, ...] | None:
        """Return that optimizer alone."""
        return None if self.optimizer is None else (self.optimizer,)


@dataclass(frozen=True, slots=True)
class OnOptimizers(Event):
    """An event that happens to gradients.

    `optimizers` are those that hold the parameters concerned: several where one call reaches the
    parameters of several, () where no optimizer holds them, None where it is not known.
    """

    optimizers: tuple[str, ...] | None

    def touches(self) -> tuple[str, ...] | None:
        """Return those optimizers."""
        return self.optimizers
