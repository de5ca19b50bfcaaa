"""Reports that are written now and then while a job runs: a kill leaves what was seen so far."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = 5.0
"""Seconds between two, at least, unless something was found."""
SHARE = 0.01
"""Of the job's time that writing may take."""
_FREE = 1.0
"""Seconds of writing that every job may have."""


class Spool:
    """Decides when to write.

    >>> written = []
    >>> spool = Spool(lambda: written.append("report"), clock=lambda: 0.0)
    >>> spool.updated(0)  # the first time: the file is there from now on
    >>> spool.updated(0)
    >>> spool.updated(1)  # a finding
    >>> len(written)
    2
    """

    def __init__(
        self, write: Callable[[], None], *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._began = clock()
        self._due = self._began
        self._spent = 0.0
        self._known = 0

    def updated(self, findings: int) -> None:
        """Take note of an update, with how much has been found so far."""
        now = self._clock()
        if now < self._due and findings == self._known:
            return
        if self._spent >= _FREE and self._spent > SHARE * (now - self._began):
            return
        self._known = findings
        self._write()
        after = self._clock()
        self._spent += after - now
        self._due = after + EVERY
