"""What events do to the gradients of an optimizer they touch."""

from collections.abc import Collection, Iterable, Sequence

from instep.trace.base import Event
from instep.trace.surroundings import Drawn, Opaque
from instep.trace.updates import Backward, GradEdited, Step, WindowDiscarded, Zero

# Asked of every event again and again: one look at its class settles most of them.
_TOUCHING = frozenset({Backward, GradEdited, Opaque, Step, Zero})
_CLEARING = frozenset({Zero, WindowDiscarded})


def clears(event: Event) -> bool:
    """Say whether the event surely leaves nothing in the gradients."""
    if type(event) not in _CLEARING:
        return False
    return not isinstance(event, Zero) or (event.complete and event.optimizers is not None)


def is_known(event: Event) -> bool:
    """Say whether what the event does to the gradients, if anything, is known."""
    if type(event) not in _TOUCHING:
        return True
    match event:
        case Backward():
            return event.optimizers is not None
        case Step():
            return event.optimizer is not None
        case Zero():
            return event.complete and event.optimizers is not None
        case GradEdited():
            return event.factor is not None
    return False


def count_micro_batches(events: Iterable[Event]) -> int:
    """Count the batches or pieces that were backpropagated.

    Different losses of one batch are one micro-batch; the same loss twice without a draw in
    between is two, since pieces need not come from anything that draws.

    >>> o = ("o",)
    >>> count_micro_batches([Drawn("loader"), Backward(o, "box"), Backward(o, "class")])
    1
    >>> count_micro_batches([Drawn("loader"), Backward(o, "patch"), Backward(o, "patch")])
    2
    """
    total = 0
    here: dict[tuple[str | None, str | None], int] = {}
    for event in events:
        kind = type(event)
        if kind is Drawn:
            if here:
                total += max(here.values())
                here.clear()
        elif isinstance(event, Backward):
            loss = event.term, event.loss
            here[loss] = here.get(loss, 0) + 1
    return total + max(here.values(), default=0)


def sum_factors(events: Sequence[Event], terms: Collection[str | None]) -> float | None:
    """Add up the factors of the backwards of these terms; None if one is not known.

    >>> o = ("o",)
    >>> sum_factors([Backward(o, factor=1.0), Backward(o, factor=1.0), GradEdited(o, 0.5)], {None})
    1.0
    """
    total = 0.0
    scale: float | None = 1.0  # from the end, since an edit reaches what was added before it
    for event in reversed(events):
        match event:
            case GradEdited():
                if scale is None or event.factor is None or event.parameter is not None:
                    scale = None
                else:
                    scale *= event.factor
            case Backward() if event.term in terms:
                if scale is None or event.factor is None:
                    return None
                total += scale * event.factor
    return total
