"""What the watcher says to people while a job runs, and at its end."""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from instep.reports.colours import Paint, wants_colour
from instep.reports.escape import visible
from instep.reports.text import header
from instep.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from instep.rules.finding import Finding
    from instep.watching.quoting import Quoting

_MOST_NAMED = 4
"""Optimizers in a summary; the rest of more of them is counted."""
PER_SECOND = 3
"""Lines at most: a job's own output stays readable. The others wait."""
_NOUNS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


class Voice:
    """Prints findings as they become certain, a few per second."""

    def __init__(
        self,
        quoting: Quoting,
        *,
        stream: TextIO | None = None,
        prefix: str = "",
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._quoting = quoting
        self._stream = stream
        self._prefix = prefix
        self._clock = clock
        self._waiting: deque[Finding] = deque()
        self._said: deque[float] = deque(maxlen=PER_SECOND)

    def tell(self, finding: Finding) -> None:
        """Say a finding, now or when there is room for it."""
        self._waiting.append(finding)
        self.go_on()

    def go_on(self, *, last: bool = False) -> None:
        """Say what waits; `last`: all of it."""
        while self._waiting:
            now = self._clock()
            is_full = len(self._said) == PER_SECOND and now - self._said[0] < 1
            if is_full and not last:
                return
            self._said.append(now)
            finding = self._quoting.shown(self._waiting.popleft())
            stream = self._stream or sys.stderr
            paint = Paint(is_on=colours(stream))
            # A progress bar has left the cursor in the middle of its line.
            start = "\r\x1b[K" if paint.is_on else ""
            say(f"{start}{self._prefix}{header(finding, self._quoting, paint)}\n", stream)


def colours(stream: TextIO | None) -> bool:
    """Say whether a stream takes colours."""
    try:
        is_terminal = stream is not None and bool(stream.isatty())
    except Exception:  # noqa: BLE001  # closed, or somebody's own, which has to have a `write` alone
        is_terminal = False
    return wants_colour("auto", is_terminal=is_terminal, environ=os.environ)


def say(text: str, stream: TextIO | None = None) -> None:
    """Write to standard error, if there is one that takes it: the job must not suffer."""
    stream = sys.stderr if stream is None else stream
    if stream is None:
        return
    try:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except Exception:  # noqa: BLE001  # a stream of the user's own may raise anything, or lack a flush
        return  # whoever listened has gone, or was interrupted by a signal while he was speaking


def counted(findings: Iterable[Finding]) -> str:
    """Return how much was found.

    >>> counted([])
    'no problems'
    """
    counts = Counter(finding.severity for finding in findings)
    said = [count_of(counts[each], _NOUNS[each]) for each in sorted(counts, reverse=True)]
    *others, last = said or ["no problems"]
    return f"{', '.join(others)} and {last}" if others else last


def count_of(number: int, noun: str) -> str:
    """Return a number of things.

    >>> count_of(1, "update"), count_of(1200, "update")
    ('1 update', '1,200 updates')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def summary(
    findings: Iterable[Finding],
    *,
    updates: Mapping[str, int],
    skipped: Mapping[str, int],
    faults: int = 0,
    aside: Iterable[str] = (),
    is_open: bool = False,
) -> str:
    """Return the last lines of a watch; `aside` is what it has not seen.

    `is_open` says that more may have been found, by ranks that were not heard to their end.

    >>> print(summary([], updates={"optimizer": 1200}, skipped={"optimizer": 2}), end="")
    Watched 1,200 updates of `optimizer`, 2 of them skipped: no problems found.
    """
    each = [
        _watched(number, skipped.get(name, 0), f"`{visible(name)}`")
        for name, number in updates.items()
    ]
    if len(each) > _MOST_NAMED:
        rest = list(updates)[_MOST_NAMED - 1 :]
        number, missed = (sum(counts.get(n, 0) for n in rest) for counts in (updates, skipped))
        others = _watched(number, missed, count_of(len(rest), "other optimizer"))
        each[_MOST_NAMED - 1 :] = [others]
    if each:
        so_far = " so far" if is_open else ""
        said = f"Watched {'; '.join(each)}: {counted(findings)} found{so_far}.\n"
    else:
        told = f"{counted(findings)} found" if findings else "there was nothing to judge"
        said = f"No update was seen: {told}.\n"
    if faults:
        said += f"The watcher failed {count_of(faults, 'time')} and may have missed something.\n"
    return said + "".join(f"{line}\n" for line in aside)


def _watched(updates: int, skipped: int, whose: str) -> str:
    missed = f", {skipped:,} of them skipped" if skipped else ""
    return f"{count_of(updates, 'update')} of {whose}{missed}"
