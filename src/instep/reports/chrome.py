"""A record in the JSON that chrome://tracing made common and Perfetto reads.

One process for the job, one track for each optimizer: a window is a slice, what happened in it are
instants, losses, norms and rates are counters.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from instep.reports.encode import compact
from instep.reports.escape import visible
from instep.reports.files import put
from instep.reports.happenings import happening
from instep.reports.spans import spans

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from instep.reports.record import Record
    from instep.reports.spans import Span

# Names of the colours that both viewers know; what they do not know they choose themselves.
_COLOURS = {
    "backward": "thread_state_running",
    "clear": "grey",
    "clip": "yellow",
    "unscale": "olive",
    "step": "good",
    "skipped": "terrible",
    "epoch": "rail_idle",
}
_COUNTERS = {
    "loss": "loss",
    "grad_norm": "gradient norm",
    "clip_norm": "gradient norm before clipping",
    "update_ratio": "update-to-weight ratio",
    "lr": "learning rate",
    "skipped": "skipped steps",
}
_JOB = 0
"""The track of what belongs to no optimizer."""


def render(record: Record) -> str:
    """Return the whole file."""
    tracks = {owner.name: number for number, owner in enumerate(record.optimizers, start=1)}
    events = [
        *_names(record, tracks),
        *(_slice(record, span, tracks) for span in spans(record) if span.optimizer in tracks),
        *_instants(record, tracks),
        *_counters(record),
    ]
    about = {"tool": "instep", **record.versions, "moments_left_out": str(record.left_out)}
    whole = {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}
    return compact(whole) + "\n"


def write(record: Record, path: str | Path) -> None:
    """Write the file; OSError if it cannot be written."""
    put(path, render(record))


def _names(record: Record, tracks: dict[str, int]) -> Iterator[dict[str, Any]]:
    rank = f" (rank {record.rank})" if record.ranks > 1 else ""
    yield _meta(record, _JOB, "process_name", name=f"instep: {visible(record.title)}{rank}")
    for name, track in {"job": _JOB, **tracks}.items():
        yield _meta(record, track, "thread_name", name=visible(name))
        yield _meta(record, track, "thread_sort_index", sort_index=track)


def _meta(record: Record, track: int, what: str, **args: object) -> dict[str, Any]:
    return {"ph": "M", "pid": record.rank, "tid": track, "name": what, "args": args}


def _slice(record: Record, span: Span, tracks: dict[str, int]) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": record.rank,
        "tid": tracks[span.optimizer],
        "ts": _micro(span.begin),
        "dur": _micro(span.end - span.begin),
        "name": f"window {span.number}" if span.skipped is None else f"skipped {span.number}",
        "cname": "good" if span.skipped is None else "terrible",
        "cat": "window",
        "args": {"backwards": span.backwards, "skipped": span.skipped or "no"},
    }


def _instants(record: Record, tracks: dict[str, int]) -> Iterator[dict[str, Any]]:
    known = [happening(event, record) for event in record.events]
    for time, index in (*record.first, *record.latest):
        what = known[index]
        if what is None:
            continue
        said = {"line": what.where, "source": what.code, "note": what.note}
        made = {
            "ph": "i",
            "pid": record.rank,
            "ts": _micro(time),
            "name": what.label,
            "cname": _COLOURS[what.kind],
            "cat": what.kind,
            "args": {name: text for name, text in said.items() if text},
        }
        if what.owners is None:
            yield {**made, "tid": _JOB, "s": "p"}
            continue
        for owner in what.owners:
            if owner in tracks:
                yield {**made, "tid": tracks[owner], "s": "t"}


def _counters(record: Record) -> Iterator[dict[str, Any]]:
    many = len(record.optimizers) > 1
    for key, points in record.lines.items():
        name, _, owner = key.partition("/")
        shown = _COUNTERS.get(name, name) + (f" ({visible(owner)})" if many else "")
        for _, time, value in points:
            if math.isfinite(value):
                yield {
                    "ph": "C",
                    "pid": record.rank,
                    "tid": _JOB,
                    "ts": _micro(time),
                    "name": shown,
                    "args": {"value": value},
                }


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 1)
