"""What the rules about clearing and accumulating ask: whose backward, which windows, how large."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING

from instep.rules.reading import is_managed, since_clear, sure_size, written
from instep.rules.view import spelled
from instep.trace import Backward, Drawn, EpochEnd, Forward, Step, windows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from instep.rules.view import View
    from instep.trace import Event, WindowRecord


def judged(view: View, *, trusted: bool = False) -> Iterator[tuple[str, tuple[WindowRecord, ...]]]:
    """Give every optimizer whose windows the source alone decides, with its windows."""
    if not is_managed(view) or trusted:
        for optimizer, windows in view.windows.items():
            if not view.is_opaque(optimizer):
                yield optimizer, windows


def followed(view: View, optimizer: str) -> tuple[WindowRecord, ...]:
    """Return the windows of an optimizer without a first one that may have begun unseen.

    Where gradients were there before a running job was watched, nobody knows what its first update
    is made of. From then on they are added to or cleared in sight.
    """
    if not view.facts.get(optimizer, {}).get("filled"):
        return view.windows[optimizer]
    steps = (at for at, e in enumerate(view.events) if _is_step_of(e, optimizer))
    first = next(steps, len(view.events) - 1)
    return windows_of(view.events[first + 1 :], optimizer)


def _is_step_of(event: Event, optimizer: str) -> bool:
    return isinstance(event, Step) and event.optimizer == optimizer


def updates(windows: Iterable[WindowRecord]) -> Iterator[tuple[WindowRecord, Step]]:
    """Give the windows that a step closed and that are known throughout, with that step.

    A closure is called as often as its optimizer likes, so what it did is not known.
    """
    for window in windows:
        if window.closed_by == "step" and window.certain and not window.steps[-1].closure:
            yield window, window.steps[-1]


def used_by_others(view: View, optimizer: str) -> frozenset[int]:
    """Return the `id` of every backward that the step of another optimizer used.

    The loss of a generator also fills the gradients of the discriminator, where it is in the way.
    """
    if len(view.windows) == 1:
        return frozenset()
    used = view.read(_used)
    return frozenset().union(*(used[other] for other in used if other != optimizer))


def _used(view: View) -> dict[str, set[int]]:
    """Return the backwards that the steps of each optimizer used, and that reach others, too."""
    return {
        optimizer: {
            id(backward)
            for window in windows
            if window.closed_by == "step"
            for backward in window.kept
            if len(backward.optimizers or ()) > 1
        }
        for optimizer, windows in view.windows.items()
    }


def is_mixed(window: WindowRecord, others: frozenset[int]) -> bool:
    """Say whether losses of another optimizer are in an update beside its own."""
    return bool(others) and len({id(backward) in others for backward in window.kept}) > 1


def sizes(window: WindowRecord) -> set[int]:
    """Return how many micro-batches the window has, counted in each way that a gate may count.

    Batches, or pieces of batches: two numbers where both are there.

    >>> from instep.trace import windows_of
    >>> o = ("o",)
    >>> patch = [Drawn("patches", of="loader"), Backward(o, "loss")]
    >>> window, = windows_of([Drawn("loader"), *patch, *patch, Step("o")], "o")
    >>> sizes(window)
    {1, 2}
    """
    events = since_clear(window)
    whole = count_batches(events)
    return {window.micro_batches} if whole is None else {whole, window.micro_batches}


def count_batches(events: Iterable[Event]) -> int | None:
    """Count the batches that were backpropagated, whole or in pieces; None if none was drawn."""
    whole, is_fresh, is_drawn = 0, True, False
    for event in events:
        match event:
            case Drawn():
                is_fresh = is_fresh or event.of is None
                is_drawn = is_drawn or event.of is None
            case Backward():
                whole, is_fresh = whole + is_fresh, False
    return whole if is_drawn else None


def count_fed(events: Iterable[Event]) -> int | None:
    """Count the batches of one loader that were backpropagated; None if none was drawn.

    Of several loaders, the one with the most: a batch of each is a task of its own, and the
    losses of tasks are meant to be added up. What was drawn ahead counts if each has a backward.

    >>> o, a, b = ("o",), Drawn("a"), Drawn("b")
    >>> count_fed([a, Backward(o), Backward(o)]), count_fed([a, Backward(o), b, Backward(o)])
    (1, 1)
    >>> count_fed([a, b, Backward(o), a, Backward(o)]), count_fed([a, a, a, *[Backward(o)] * 3])
    (2, 3)
    """
    fed, drawn, backwards, is_drawn = Counter[str | None](), Counter[str | None](), 0, False
    for event in (*events, Drawn(None)):
        match event:
            case Drawn(of=None):
                if backwards:
                    fed.update({each: n if n == backwards else 1 for each, n in drawn.items()})
                    is_drawn = is_drawn or bool(drawn)
                    drawn, backwards = Counter(), 0
                drawn[event.loader] += 1
            case Backward():
                backwards += 1
    return max(fed.values(), default=0) if is_drawn else None


def micro_batches_of_loader(view: View, window: WindowRecord) -> int | None:
    """Return the batches, or parts of batches, that a running job has added up in a window.

    Several losses of one batch are one; None: nobody can say what was a batch and what a loss.
    """
    fed = count_fed(window.events)
    if fed is not None and fed > 1 and not _is_of_one_line(window, fed):
        return None  # a batch for each of several tasks, perhaps
    if fed is not None and fed > 1:
        fed = min(fed, _count_forwards(window) or fed)
    cut = any(view.facts.get(event.loader or "", {}).get("cut") for event in window.of(Drawn))
    if cut or (fed is not None and fed > 1 and window.micro_batches == fed + 1):
        return window.micro_batches  # the one too many was drawn ahead, in the window before
    if fed == 1 and window.optimizer in view.read(_looking_ahead):
        ahead = _count_ahead(window)
        if ahead > 1 and abs(ahead - window.micro_batches) == 1:
            return window.micro_batches
    return fed


def _is_of_one_line(window: WindowRecord, size: int) -> bool:
    """Say whether one line goes backward for so many batches."""
    return max(Counter(backward.place for backward in window.kept).values()) >= size


def _count_forwards(window: WindowRecord) -> int:
    """Count the backwards with a forward of their own: of several without, all are losses of one
    thing, however many batches that was made of. 0: forwards were not seen.
    """
    found, is_fresh = 0, False
    for event in window.events:
        match event:
            case Forward():
                is_fresh = True
            case Backward():
                found, is_fresh = found + is_fresh, False
    return found


def _looking_ahead(view: View) -> set[str]:
    """Return the optimizers whose windows are drawn at once by a loader that is one batch ahead.

    To know which batch is the last, such a loader draws one more than is used at the beginning of
    an epoch and one fewer at its end; in between it holds one back while windows draw what they
    use. Groups of batches for so many losses are never uneven in all three ways.
    """
    return {name for name, windows in view.windows.items() if _is_ahead(windows)}


def _is_ahead(windows: Iterable[WindowRecord]) -> bool:
    drawn = ((_count_ahead(w), w.micro_batches) for w in windows if w.closed_by == "step")
    seen = itertools.dropwhile(lambda counts: not counts[0], drawn)
    shifts = [ahead - used for ahead, used in seen]
    held = [*itertools.accumulate(shifts)]
    most, least = max(held, default=0), min(held, default=0)
    is_kept = any(not shift and holds == most for shift, holds in zip(shifts, held, strict=True))
    return {-1, 1} <= {*shifts} and most - least == 1 and is_kept


def _count_ahead(window: WindowRecord) -> int:
    """Count the batches of one loader before the first backward, if there are none after it."""
    drawn, is_used = list[str | None](), False
    for event in window.events:
        match event:
            case Drawn(of=None) if is_used:
                return 0
            case Drawn(of=None):
                drawn.append(event.loader)
            case Backward():
                is_used = True
    return len(drawn) if len(set(drawn)) == 1 else 0


def size_of(view: View, window: WindowRecord) -> int:
    """Return the micro-batches of a window as well as whoever made the trace can know them."""
    watched = view.facts.get("job", {}).get("source") == "watch"
    size = micro_batches_of_loader(view, window) if watched else None
    return window.micro_batches if size is None else size


def pieces(window: WindowRecord) -> tuple[Drawn, ...]:
    """Return the draws of pieces of a batch whose gradients are in the update."""
    return tuple(
        event for event in since_clear(window) if isinstance(event, Drawn) and event.of is not None
    )


def trained(view: View) -> frozenset[str | None]:
    """Return the loaders that feed backwards, and not those of a validation in between."""
    return view.read(_trained)


def _trained(view: View) -> frozenset[str | None]:
    drawn: set[str | None] = set()
    found: set[str | None] = set()
    for event in view.events:
        match event:
            case Drawn():
                if event.of is None:
                    drawn.add(event.loader)
            case EpochEnd():
                if event.of is None:
                    drawn.discard(event.loader)
            case Backward():
                found |= drawn
                drawn = set()
    return frozenset(found)


def is_end(event: object, loaders: frozenset[str | None]) -> bool:
    """Say whether an event is the end of an epoch of training."""
    return (
        isinstance(event, EpochEnd)
        and event.of is None
        and (not loaders or event.loader is None or event.loader in loaders)
    )


def closes_epoch(windows: Sequence[WindowRecord], at: int, loaders: frozenset[str | None]) -> bool:
    """Say whether no batch of the epoch is left after a window."""
    for event in windows[at + 1].events if at + 1 < len(windows) else ():
        if is_end(event, loaders):
            return True
        if isinstance(event, Backward) or (isinstance(event, Drawn) and event.loader in loaders):
            return False
    return False


def is_sum(view: View, backward: Backward) -> bool:
    """Say whether a loss is known to be a sum over its items, so that sums of it are right."""
    if backward.reduction is not None:
        return backward.reduction == "sum"
    return fact(view, backward, "reduction") == "sum"


def fact(view: View, backward: Backward, name: str) -> object:
    """Return a fact about the loss of a backward; None if it is not known."""
    return None if backward.loss is None else view.facts.get(backward.loss, {}).get(name)


def is_close(one: float | None, other: float) -> bool:
    """Say whether two factors are equal but for rounding; an unknown one is equal to none."""
    return one is not None and math.isclose(one, other, rel_tol=1e-6)


def quoted(optimizers: Iterable[str]) -> str:
    """Return optimizers as a message names them.

    >>> quoted(["opt_g", "opt_d#2"])
    '`opt_g` and `opt_d`'
    """
    return " and ".join(dict.fromkeys(f"`{spelled(optimizer)}`" for optimizer in optimizers))


def given(view: View, window: WindowRecord, size: int, noun: str = "micro-batch") -> str:
    """Return how a message begins that goes on to quote the size of a window.

    The checker puts a number in place of one that the source does not write, and says so; what a
    running job has counted is so.
    """
    whole = counted(size, noun)
    if view.facts.get("job", {}).get("source") != "check" or sure_size(view, window) == size:
        return f"with {whole} in a window, "
    if written(view, window) == "default" and any(step.every == size for step in window.steps):
        return f"with {whole} in a window, which is the default, "
    return f"if a window has, say, {whole}, "


def counted(number: int, noun: str = "micro-batch") -> str:
    """Return a number with its noun.

    >>> counted(1), counted(3), counted(2, "piece")
    ('1 micro-batch', '3 micro-batches', '2 pieces')
    """
    ending = "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{ending}"
