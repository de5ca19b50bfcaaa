"""One window as it happened, and what can be read off it."""

from itertools import takewhile
from typing import Literal, TypeAlias, TypeVar

from instep.trace.base import Event
from instep.trace.gradients import clears, count_micro_batches, is_known, sum_factors
from instep.trace.once import once
from instep.trace.plain import dataclass
from instep.trace.updates import Backward, Step

_E = TypeVar("_E", bound=Event)

Closing: TypeAlias = Literal["step", "discarded", "recreated"] | None
"""What ended a window: a step (skipped or not), giving it up, the optimizer being made anew, or
None while it is open at the end of the trace."""


@dataclass(frozen=True)
class WindowRecord:
    """Everything between two updates of one optimizer, the closing event included.

    What is read off it is computed once, since every rule asks again.

    Clearing after a step belongs to the window that follows. Unless said otherwise the numbers
    are about `kept`: the backwards of this window that are in its update.
    """

    optimizer: str
    index: int  # windows of this optimizer before it
    events: tuple[Event, ...]
    closed_by: Closing
    pending: int | None = 0  # backwards of earlier windows in `.grad` at the opening; None: unknown
    leftover: int = 0  # micro-batches that waited for an update when the loader's epoch ended

    def of(self, kind: type[_E]) -> tuple[_E, ...]:
        """Return the events of one class, in order."""
        return tuple([event for event in self.events if isinstance(event, kind)])

    @once
    def backwards(self) -> tuple[Backward, ...]:
        """All backwards, also those that were cleared again."""
        return self.of(Backward)

    @once
    def steps(self) -> tuple[Step, ...]:
        """The closing step, or nothing."""
        last = self.events[-1] if self.events else None
        return (last,) if isinstance(last, Step) else ()

    @once
    def certain(self) -> bool:
        """Nothing in it is opaque, and whom each backward, clear and step concerns is known."""
        return all(map(is_known, self.events))

    @once
    def cleared(self) -> bool | None:
        """Whether `.grad` was empty when the first backward added to it; None if not known."""
        if any(map(clears, self._before_backward)):
            return True
        if self.pending is None or not all(map(is_known, self._before_backward)):
            return None
        return self.pending == 0

    @once
    def kept(self) -> tuple[Backward, ...]:
        """The backwards after the last clear: those whose gradients the close finds."""
        return tuple([event for event in self.since_clear if type(event) is Backward])

    @once
    def lost(self) -> tuple[Backward, ...]:
        """The backwards whose gradients were cleared before any update used them."""
        backwards = self.backwards
        return backwards[: len(backwards) - len(self.kept)]

    @once
    def carried(self) -> int | None:
        """Backwards of earlier windows that are in this update too; None if not known."""
        is_cleared = len(self.since_clear) < len(self.events)
        if self.pending == 0 or is_cleared:
            return 0
        return self.pending if self.certain else None

    @once
    def passed_on(self) -> int | None:
        """Backwards in `.grad` when the next window opens; None if not known."""
        carried = self.carried
        if carried is None or not (self.certain or all(map(is_known, self.since_clear))):
            return None
        return carried + len(self.kept)

    @once
    def items(self) -> float | None:
        """Samples, tokens or pixels; None if neither the backwards nor the step say."""
        counts = [backward.items for backward in self.kept]
        known = [count for count in counts if count is not None]
        if len(known) == len(counts):
            return sum(known)
        return self.steps[-1].items if self.steps else None

    @once
    def micro_batches(self) -> int:
        """Batches or pieces of batches; several losses of one batch are one."""
        return count_micro_batches(self.since_clear)

    @once
    def factor_sum(self) -> float | None:
        """Sum of the factors of the losses, with edits of the gradients; None if not known."""
        return self.factor_sum_of(*{backward.term for backward in self.kept})

    def factor_sum_of(self, *terms: str | None) -> float | None:
        """Sum the same over some terms of the loss: 1 is the mean over equal micro-batches."""
        return sum_factors(self.since_clear, terms)

    @once
    def _before_backward(self) -> tuple[Event, ...]:
        return tuple(takewhile(_is_no_backward, self.events))

    @once
    def since_clear(self) -> tuple[Event, ...]:
        """The events after the last clear: those that its update is made of."""
        events = self.events
        for at in range(len(events), 0, -1):
            if clears(events[at - 1]):
                return events[at:]
        return events


def told(record: WindowRecord, *, certain: bool, since: int) -> WindowRecord:
    """Return a record with what whoever made it knows of its events: whether all of them are known,
    and where those after the last clear begin.
    """
    record.__dict__.update(certain=certain, since_clear=record.events[since:])
    return record


def _is_no_backward(event: Event) -> bool:
    return not isinstance(event, Backward)
