"""What several rules ask of a trace: who manages it, how large a window is for certain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from instep.rules.finding import Severity
from instep.trace import Clip, Drawn, GradEdited, Measured, Opaque

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from instep.rules.finding import Finding
    from instep.rules.view import View
    from instep.trace import Event, Fact, WindowRecord
    from instep.trace.updates import Written


def is_managed(view: View) -> bool:
    """Say whether a framework decides which micro-batch closes a window."""
    return bool(view.facts.get("job", {}).get("managed"))


def is_for_torch_before(view: View, major: int, minor: int) -> bool:
    """Say whether a project says that it is for a torch from before a version."""
    torch = view.facts.get("job", {}).get("torch")
    return isinstance(torch, tuple) and torch < (major, minor)


def distinct(findings: Iterable[Finding | None]) -> Iterator[Finding]:
    """Leave out what has no place, and all but the first finding at one place."""
    seen = set()
    for finding in findings:
        if finding is not None and finding.place not in seen:
            seen.add(finding.place)
            yield finding


def measured(view: View, quantity: str) -> Iterator[Measured]:
    """Give what a running job has measured of a quantity; nothing in a trace made from source."""
    return (event for event in view.trace.of(Measured) if event.quantity == quantity)


def since_clear(window: WindowRecord) -> tuple[Event, ...]:
    """Return the events after the last clear: those that its update is made of."""
    return window.since_clear


def sure_size(view: View, window: WindowRecord) -> int | None:
    """Return the micro-batches of a window; None where the source does not write the number.

    The checker puts a small number in place of one that it cannot know, and nobody should read
    that one in a message.
    """
    size = window.micro_batches
    if view.facts.get("job", {}).get("source") != "check":
        return size
    if any(step.every_written == "literal" and step.every == size for step in window.steps):
        return size
    loaders = {event.loader for event in window.of(Drawn)}
    lengths = (view.facts.get(loader, {}).get("length") for loader in loaders if loader)
    return size if size in lengths else None


def written(view: View, window: WindowRecord) -> Written | None:
    """Say where the number of micro-batches in a window is written, if the source counts them."""
    for step in window.steps:
        if step.every_written is not None:
            return step.every_written
    for event in window.of(Drawn):
        found = view.facts.get(event.loader or "", {}).get("length_written")
        if event.of is not None and found is not None:
            return cast("Written", found)
    return None


def if_several(view: View, window: WindowRecord, severity: Severity) -> Severity:
    """Return how bad it is what happens only in windows of several micro-batches.

    Nobody meets it while the size of windows is an option that is 1; and where the source does not
    say what it is, it may be.
    """
    match written(view, window):
        case "one":
            return Severity.INFO
        case "nowhere":
            return min(severity, Severity.WARNING)
    return severity


def only_measures(clip: Clip) -> bool:
    """Say whether a clip has no limit: it is called for the norm that it returns."""
    return clip.limit is not None and math.isinf(clip.limit)


def is_hidden(events: Sequence[Event]) -> bool:
    """Say whether something among these events may have done anything to the gradients."""
    return any(
        isinstance(event, Opaque) or (isinstance(event, GradEdited) and event.factor is None)
        for event in events
    )


def is_part(one: str, other: str) -> bool:
    """Say whether one model is the other, or a layer of it.

    >>> is_part("model.head", "model"), is_part("model2", "model")
    (True, False)
    """
    return one == other or one.startswith(f"{other}.")


def names(fact: Fact) -> tuple[str, ...] | None:
    """Return a fact that lists ids; None if it is not known."""
    if not isinstance(fact, tuple):
        return None
    return tuple(part for part in fact if isinstance(part, str))
