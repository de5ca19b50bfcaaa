"""The watches that are on, the newest last."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.watching.job import Job

_RUNNING: list[Job] = []


def began(job: Job) -> None:
    """Take note that a watch is on."""
    _RUNNING.append(job)


def ended(job: Job) -> None:
    """Take note that it is over."""
    if job in _RUNNING:
        _RUNNING.remove(job)


def newest() -> Job | None:
    """Return the watch that was begun last, if any is on."""
    return _RUNNING[-1] if _RUNNING else None
