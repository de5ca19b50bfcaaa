"""A signal to end, kept until there is a safe point, and then handed to whoever had it before.

Python runs a handler between two bytecodes: in the middle of a forward as well, where nothing can
be saved. So a handler of ours only notes the signal. Once the work is saved, the handler that was
there before is called, or, if there was none, the process ends by the signal as it would have
without us.

A signal that comes again at once is the same request: torchrun, and others who start processes,
pass on what the whole process group was told already. A later one does not wait.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, TracebackType

    Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None

REPEAT = 5.0
"""Seconds in which a signal that comes again is the same request."""


class Signals:
    """Handlers of signals, from `install` to `restore`."""

    def __init__(
        self,
        numbers: Sequence[int],
        deadline: float,
        on_deadline: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._numbers = tuple(numbers)
        self._deadline = deadline
        self._on_deadline = on_deadline
        self._clock = clock
        self._since = 0.0
        self._is_expired = False
        self._previous: dict[int, Handler] = {}
        self._workers_handler: Handler = None
        self._pid = os.getpid()
        self._timer: threading.Timer | None = None
        self.received: int | None = None
        """The signal that waits for a safe point."""

    def install(self) -> None:
        """Take the place of the handlers that are there; in the main thread."""
        for number in self._numbers:
            self._previous[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put back the handlers that were there, unless somebody has set others since."""
        self._stop_waiting()
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:
                # None is a handler that was not set from Python, and cannot be from here.
                signal.signal(number, signal.SIG_DFL if previous is None else previous)
        self._previous = {}
        self.received = None

    def ended_by(self, trace: TracebackType | None) -> int | None:
        """Return the signal whose handler raised this, if it was set in the place of ours."""
        codes = {frame.f_code for frame, _ in traceback.walk_tb(trace)}
        for number in self._previous:
            found = signal.getsignal(number)
            if found != self._handle and getattr(found, "__code__", None) in codes:
                return number
        return None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # A fork has inherited this handler, and must end when it is told to.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if self.received is not None:
            if self._is_expired:
                self._on_deadline(number)
            elif number == self.received and self._clock() - self._since < REPEAT:
                return
            self.pass_on(frame)
            return
        self.received, self._since, self._is_expired = number, self._clock(), False
        self._shield_from_workers()
        self._timer = threading.Timer(self._deadline, self._expire, (number,))
        self._timer.daemon = True
        self._timer.start()

    def _expire(self, number: int) -> None:
        # Only the main thread runs handlers: the signal is sent once more.
        self._is_expired = True
        os.kill(self._pid, number)

    def _shield_from_workers(self) -> None:
        """Let data loading workers die quietly until the work is saved.

        A scheduler tells the whole process group, and torch raises in the middle of anything when
        a worker has ended.
        """
        if hasattr(signal, "SIGCHLD"):
            self._workers_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._workers_handler is not None:
            signal.signal(signal.SIGCHLD, self._workers_handler)
            self._workers_handler = None

    def pass_on(self, frame: FrameType | None = None) -> None:
        """Do what the signal would have done without us; returns if its handler does."""
        number, self.received = self.received, None
        if number is None:
            return
        self._stop_waiting()
        previous = self._previous.get(number)
        if callable(previous):
            previous(number, frame)
        elif previous != signal.SIG_IGN:
            self.restore()
            sys.stdout.flush()
            sys.stderr.flush()
            os.kill(os.getpid(), number)
