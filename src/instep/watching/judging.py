"""The rules over a trace that grows: when to look, and when a finding is certain."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from time import thread_time
from typing import TYPE_CHECKING

from instep.rules.accumulation import size_of
from instep.rules.finding import Severity
from instep.rules.registry import watched
from instep.rules.verdict import judge_all
from instep.rules.view import View
from instep.trace import Created, Step, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from instep.rules.finding import Finding
    from instep.trace import Event, Place
    from instep.watching.gauges import Gauges
    from instep.watching.series import Series
    from instep.watching.stream import Stream

SHARE = 0.02
"""Of the job's time that judging may take, after its beginning."""
_FREE = 2.0
"""Seconds of judging that every job may have."""


class Judge:
    """Looks at the trace when it has something new, and tells each finding once."""

    def __init__(self, stream: Stream, gauges: Gauges, series: Series) -> None:
        self.stream = stream
        self.gauges = gauges
        self.series = series
        self.findings: dict[tuple[str, Place], Finding] = {}
        self.spent = 0.0
        self.told: Callable[[Finding], None] = lambda _: None
        self._seen: dict[tuple[str, Place], int] = {}  # the update at which it was first seen
        self._updates = 0
        self._due = 0  # judge at this update; 0: nothing is new

    def turned(self, kept: bool) -> None:  # noqa: FBT001  # called by the recorder alone
        """Take note that a stretch has ended, and look if it is time."""
        self._updates += 1
        if not self._due and (kept or self.gauges.has_news):
            # The next update shows what came of it.
            self._due = self._updates + 1
        if self._due and self._updates >= self._due and self._has_time():
            self._due = self._updates + 1 if kept else 0
            self.look()
            if any(key not in self.findings for key in self._seen):
                self._due = self._updates + 1

    def _has_time(self) -> bool:
        return self.spent < _FREE or self.spent < SHARE * self.series.now()

    def look(self, *, last: bool = False) -> None:
        """Judge what there is; `last`: nothing will come to change it."""
        started = thread_time()
        self.gauges.looked()
        found = {
            (finding.code, finding.place): finding
            for finding in judge_all(View(settled(self.stream.trace, self.gauges, is_over=last)))
        }
        for key, finding in found.items():
            first = self._seen.setdefault(key, self._updates)
            if key not in self.findings and (last or first < self._updates):
                self.findings[key] = finding
                self.told(finding)
            elif key in self.findings:
                was, self.findings[key] = self.findings[key], finding  # with the latest numbers
                if finding.severity > was.severity:
                    self.told(finding)
        for key in list(self._seen):
            if key not in found and key not in self.findings:
                del self._seen[key]  # it was too early to say so
        if last:
            self._withdraw(found)
        self.spent += thread_time() - started

    def _withdraw(self, found: Collection[tuple[str, Place]]) -> None:
        """Take back what was measured once and is over, and notes that the end does not bear out.

        A gradient came after all, or an optimizer for what was nobody's.
        """
        measured = watched()
        for key, finding in list(self.findings.items()):
            is_brief = key[0] in measured or finding.severity is Severity.INFO
            if is_brief and key not in found:
                del self.findings[key]


def settled(events: Iterable[Event], gauges: Iterable[Event], *, is_over: bool = True) -> Trace:
    """Return a trace that the rules can read: gates by their usual size, gauges at the end."""
    events = list(events)
    view = View(Trace(events))
    usual = {
        name: _usual([size_of(view, window) for window in each if window.closed_by == "step"])
        for name, each in view.windows.items()
    }
    trace = Trace()
    for event in events:
        if isinstance(event, Step):
            # Each a thing of its own: rules tell windows apart by the step that closed them.
            trace.record(replace(event, every=usual.get(event.optimizer or "")))
        else:
            trace.record(event)
    for event in gauges:
        trace.record(event)
    if not is_over:
        known = {name: fact for name, fact in trace.facts.get("job", {}).items() if name != "role"}
        trace.record(Created("job", "job", {**known, "running": True}))
    return trace


def _usual(sizes: list[int]) -> int | None:
    """Return how many micro-batches most windows have, if that is more than one."""
    counted = Counter(size for size in sizes if size > 0)
    if not counted:
        return None
    (size, times), *_ = counted.most_common(1)
    return size if size > 1 and times * 2 > counted.total() else None
