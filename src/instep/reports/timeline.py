"""The moments of a record as the numbers that a timeline is drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.reports.escape import visible
from instep.reports.happenings import KINDS, happening
from instep.reports.spans import spans

if TYPE_CHECKING:
    from instep.reports.record import Record

MOST_ROWS = 24
"""Optimizers that have a row; a sentence says so if there are more."""


def timeline(record: Record) -> dict[str, Any]:
    """Return rows, events, moments and windows; times are in seconds."""
    rows = {owner.name: number for number, owner in enumerate(record.optimizers[:MOST_ROWS])}
    shown: list[dict[str, Any]] = []
    number_of: dict[int, int] = {}
    for index, event in enumerate(record.events):
        what = happening(event, record)
        if what is None:
            continue
        on = None if what.owners is None else [rows[name] for name in what.owners if name in rows]
        if on == []:
            continue  # gradients that no optimizer holds have no row
        number_of[index] = len(shown)
        shown.append(
            {
                "kind": what.kind,
                "rows": on,
                "label": what.label,
                "note": what.note,
                "where": what.where,
                "code": what.code,
            }
        )
    moments = [
        (round(time, 6), number_of[index])
        for time, index in (*record.first, *record.latest)
        if index in number_of
    ]
    return {
        "rows": [
            {"name": visible(o.name), "updates": o.updates, "skipped": o.skipped}
            for o in record.optimizers[:MOST_ROWS]
        ],
        "kinds": KINDS,
        "events": shown,
        "times": [time for time, _ in moments],
        "which": [which for _, which in moments],
        "spans": [
            [
                rows[each.optimizer],
                round(each.begin, 6),
                round(each.end, 6),
                each.backwards,
                each.number,
                visible(each.skipped or ""),
            ]
            for each in spans(record)
            if each.optimizer in rows
        ],
        "gap": _gap(record),
        "seconds": round(record.seconds, 6),
    }


def _gap(record: Record) -> list[float] | None:
    """Return from when to when moments were left out, and how many."""
    if not record.left_out or not record.first or not record.latest:
        return None
    return [round(record.first[-1][0], 6), round(record.latest[0][0], 6), record.left_out]
