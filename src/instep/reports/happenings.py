"""Events as a timeline shows them: a kind that has a colour, a few words, the user's line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.reports.escape import visible
from instep.trace import Backward, Clip, EpochEnd, Step, Unscale, WindowDiscarded, Zero
from instep.trace.plain import dataclass
from instep.trace.updates import RAISED

if TYPE_CHECKING:
    from instep.reports.record import Record
    from instep.trace import Event, Place

KINDS = {
    "backward": "backward",
    "clear": "clear",
    "unscale": "unscale",
    "clip": "clip",
    "step": "step",
    "skipped": "skipped step",
    "epoch": "end of epoch",
}
"""What a timeline draws, and its names."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One event, ready to be shown: everything in it is safe to print."""

    kind: str
    label: str
    note: str
    """What is known besides; empty: nothing."""
    owners: tuple[str, ...] | None
    """Optimizers, as events name them; None: it concerns them all."""
    where: str
    code: str
    """The user's line; empty where it is not known."""


def happening(event: Event, record: Record) -> Happening | None:
    """Return what a timeline shows of an event; None if it shows nothing."""
    said = _said(event)
    if said is None:
        return None
    kind, label, note = said
    place = event.place
    if place is None:
        where, code = "", ""
    else:
        where = visible(f"{record.shown(place.path)}:{place.line}")
        code = visible(quoted(place, record).strip())[:200]
    return Happening(kind, label, visible(note)[:300], event.touches(), where, code)


def quoted(place: Place, record: Record) -> str:
    """Return the user's line of a place; empty if it is not at hand."""
    known = record.quotes.get(place.path, {}).get(place.line)
    return known if known is not None else (place.snippet or "").partition("\n")[0]


def _said(event: Event) -> tuple[str, str, str] | None:
    """Return the kind, what it is called, and what is known besides."""
    kind = label = note = ""
    match event:
        case Backward():
            kind, note = "backward", _backward(event)
        case Zero():
            kind, note = "clear", _cleared(event)
        case WindowDiscarded():
            kind, label, note = "clear", "window discarded", event.reason or ""
        case Unscale():
            kind, note = "unscale", f"by {event.scaler}" if event.scaler else ""
        case Clip():
            limit = "" if event.limit is None else f" at {event.limit:g}"
            kind, note = "clip", f"by {event.by}{limit}"
        case Step(skipped=None):
            kind, note = "step", f"through {event.scaler}" if event.scaler else ""
        case Step() if event.skipped == RAISED:
            kind, label = "skipped", "step that raised"
        case Step():
            kind, note = "skipped", event.skipped or ""
        case EpochEnd(of=None):
            batches = "" if event.batches is None else f" after {event.batches:,} batches"
            kind, note = "epoch", f"{event.loader or 'a loader'}{batches}"
    return (kind, label or KINDS[kind], note) if kind else None


def _cleared(event: Zero) -> str:
    if not event.complete:
        return "not all of the parameters"
    return "filled with zeros" if event.set_to_none is False else ""


def _backward(event: Backward) -> str:
    said = []
    if event.factor is not None:
        said.append(f"factor {event.factor:.4g}")
    if event.reduction is not None:
        said.append(f"a {event.reduction} loss")
    if event.scaled:
        said.append("scaled")
    if event.models:
        said.append(f"of {', '.join(event.models[:3])}")
    return ", ".join(said)
