"""From a job to its record: what is reported, in plain data."""

from __future__ import annotations

import linecache
import os
import platform
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from instep.reports.record import Owner, Record
from instep.trace import Created, Drawn, Forward, Mode
from instep.watching.unseen import unseen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from instep.reports.record import Moment
    from instep.rules.finding import Finding
    from instep.trace import Event, Place
    from instep.watching.job import Job
    from instep.watching.series import Series

_AROUND = 2
"""Lines before and after a finding that are quoted with it."""
_MOST_CHARACTERS = 400
"""Of a quoted line."""
_UNDRAWN = (Created, Drawn, Forward, Mode)
"""Events that no report draws."""


def record_of(
    job: Job,
    *,
    command: Sequence[str] = (),
    ending: str = "finished",
    error: str | None = None,
    findings: Iterable[Finding] | None = None,
    version: str | None = None,
    most_moments: int | None = None,
    unheard: Iterable[int] = (),
) -> Record:
    """Return what a job has shown so far; it may still be running.

    `findings` stands for the job's own where some of them are not to be told; `most_moments` keeps
    a record that is written again and again small; `unheard` are ranks that have not said how they
    ended.
    """
    series = job.series
    found = tuple(job.findings if findings is None else findings)
    events, first, latest, left_out = _moments(series, most_moments)
    seconds = series.now()
    began = datetime.now().astimezone() - timedelta(seconds=seconds)
    return Record(
        title=Path(command[0]).name if command else "instep.watch",
        command=tuple(command),
        folder=_folder(),
        began=began.isoformat(sep=" ", timespec="seconds"),
        seconds=seconds,
        ending=ending,
        error=error,
        rank=_number("RANK", 0),
        ranks=_number("WORLD_SIZE", 1),
        versions=_versions(version),
        findings=found,
        optimizers=_owners(job),
        lines={name: tuple(line) for name, line in list(series.lines.items())},
        events=events,
        first=first,
        latest=latest,
        left_out=left_out,
        unseen=tuple(unseen(job)),
        unheard=tuple(unheard),
        quotes=_quotes(found, events),
    )


def _moments(
    series: Series, most: int | None
) -> tuple[tuple[Event, ...], tuple[Moment, ...], tuple[Moment, ...], int]:
    """Return the events that happened, each once, and when: the beginning, the end, the rest."""
    numbers: dict[int, int] = {}
    events: list[Event] = []

    def numbered(moments: Iterable[tuple[float, Event]]) -> list[Moment]:
        made: list[Moment] = []
        for time, event in moments:
            if isinstance(event, _UNDRAWN):
                continue
            number = numbers.get(id(event))
            if number is None:
                number = numbers[id(event)] = len(events)
                events.append(event)
            made.append((time, number))
        return made

    first, latest, left_out = series.first, series.latest, series.left_out
    if most is not None and len(first) + len(latest) > most:
        both = first + latest
        # A quarter of it for the beginning; if little has happened yet, the end is in `first`.
        first, latest = both[: most // 4], both[len(both) - (most - most // 4) :]
        left_out += len(both) - most
    begun, ended = numbered(first), numbered(latest)
    return tuple(events), tuple(begun), tuple(ended), left_out


def _owners(job: Job) -> tuple[Owner, ...]:
    """Return the optimizers that were stepped, in the order in which they first were."""
    return tuple(
        Owner(
            name,
            _text(job.recorder.facts.get(name, {}).get("type")),
            count,
            job.series.skipped.get(name, 0),
        )
        for name, count in list(job.series.updates.items())
    )


def _text(fact: object) -> str | None:
    return fact if isinstance(fact, str) else None


def _quotes(findings: Iterable[Finding], events: Iterable[Event]) -> dict[str, dict[int, str]]:
    """Return the user's lines that a report shows."""
    wanted: dict[str, set[int]] = {}

    def want(place: Place, around: int) -> None:
        last = max(place.end_line or place.line, place.line)
        lines = {*range(place.line - around, place.line + around + 1), last}
        wanted.setdefault(place.path, set()).update(lines)

    for finding in findings:
        for place in (finding.place, *(related.place for related in finding.related)):
            want(place, _AROUND)
    for event in events:
        if event.place is not None:
            want(event.place, 0)
    return {path: quoted for path, lines in wanted.items() if (quoted := _lines(path, lines))}


def _lines(path: str, numbers: set[int]) -> dict[int, str]:
    # linecache also knows what has no file: cells of a notebook, doctests.
    known = linecache.getlines(path)
    return {
        number: known[number - 1].rstrip("\r\n")[:_MOST_CHARACTERS]
        for number in sorted(numbers)
        if 1 <= number <= len(known)
    }


def _versions(version: str | None) -> dict[str, str]:
    found = {} if version is None else {"instep": version}
    found["torch"] = str(torch.__version__)
    found["python"] = platform.python_version()
    found["system"] = f"{platform.system()} {platform.machine()}"
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["device"] = torch.cuda.get_device_name()
    return found


def _number(name: str, otherwise: int) -> int:
    said = os.environ.get(name, "")
    return int(said) if said.isdecimal() else otherwise


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed under the job
        return sys.path[0] if sys.path else ""
