"""The rules over a trace that grows: when to look, and when a finding is certain."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from time import thread_time
from typing import TYPE_CHECKING

from instep.rules.accumulation import closes_epoch, is_close, is_end, size_of, trained
from instep.rules.finding import Severity
from instep.rules.registry import watched
from instep.rules.verdict import judge_all
from instep.rules.view import View
from instep.trace import Backward, Created, Step, Trace
from instep.trace.gradients import count_micro_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from instep.rules.finding import Finding
    from instep.trace import Event, Place, WindowRecord
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
    usual = {name: _gate(view, windows) for name, windows in view.windows.items()}
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


def _gate(view: View, windows: tuple[WindowRecord, ...]) -> int | None:
    """Return the micro-batches of a full window: what losses are divided by, or else the usual."""
    closed = [window for window in windows if window.closed_by == "step"]
    written = _divisor([backward for window in closed for backward in window.kept])
    sizes = {window.index: _size(view, window, written) for window in closed}
    if written is not None and written in sizes.values():
        loaders = trained(view)
        inside = [w for w in closed if not _spans_epochs(w, loaders)]
        # With one window in an epoch and a rest, most windows are no full ones.
        if any(sizes[w.index] == written for w in inside) and all(
            sizes[w.index] == written
            or (sizes[w.index] < written and _is_rest(w, windows, loaders))
            for w in inside
        ):
            return written
    return _usual(list(sizes.values()))


def _size(view: View, window: WindowRecord, written: int | None) -> int:
    """Return the micro-batches of a window, those included that were cleared too early."""
    is_whole = bool(window.lost) and count_micro_batches(window.events) == written
    return written or 0 if is_whole else size_of(view, window)


def _divisor(backwards: list[Backward]) -> int | None:
    """Return the number that all losses are divided by, if they are means and it is one."""
    factors = {backward.factor for backward in backwards}
    factor = factors.pop() if len(factors) == 1 else None
    if not factor or not 0 < factor < 1 or any(b.reduction != "mean" for b in backwards):
        return None
    number = round(1 / factor)
    return number if is_close(factor, 1 / number) else None


def _spans_epochs(window: WindowRecord, loaders: frozenset[str | None]) -> bool:
    """Say whether an epoch ends between the backwards of a window."""
    at = [at for at, event in enumerate(window.events) if isinstance(event, Backward)]
    between = window.events[at[0] : at[-1]] if at else ()
    return any(is_end(event, loaders) for event in between)


def _is_rest(
    window: WindowRecord, windows: tuple[WindowRecord, ...], loaders: frozenset[str | None]
) -> bool:
    """Say whether a window has the last batches of an epoch."""
    at = [at for at, event in enumerate(window.events) if isinstance(event, Backward)]
    after = window.events[at[-1] :] if at else ()
    ends = any(is_end(event, loaders) for event in after)
    return ends or closes_epoch(windows, window.index, loaders)


def _usual(sizes: list[int]) -> int | None:
    """Return how many micro-batches most windows have, if that is more than one."""
    counted = Counter(size for size in sizes if size > 0)
    if not counted:
        return None
    (size, times), *_ = counted.most_common(1)
    return size if size > 1 and times * 2 > counted.total() else None
