"""Failing on demand, from outside of the library: it knows nothing of this.

Every operation of torch and everything that is done to the disk is counted, by phase. At the
planned one the process is killed or hangs, or the disk is full.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from torch.utils._python_dispatch import TorchDispatchMode

from instep.checkpoint import envelope
from instep.engine import saving
from instep.engine.core import Core
from instep.engine.feed import Feed
from instep.engine.window import Window
from tests.faults.plan import Plan

# Which calls are which phase; what is not in one of them is forward, or the loop around it.
PHASES = [
    (Feed, "_next", "data"),
    (Window, "backward", "backward"),
    (Core, "close", "close"),
    (saving, "save", "save"),
    (saving, "load", "load"),
]
DISK = [
    (os, "fsync"),
    (Path, "replace"),
    (Path, "hardlink_to"),
    (Path, "unlink"),
    (envelope.Sealing, "seal"),
]


class Meddling:
    """Counts what a job does, and makes it fail where the plan says."""

    def __init__(self, plan: Plan | None, fault: str = "kill", log: Path | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.raised = 0
        self.failed = ""
        """What failed, by its name, where the disk was full."""
        self._plan, self._fault, self._log = plan, fault, log
        self._phase = "forward"
        self._pid = os.getpid()
        self._undo: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Self:
        for owner, name, phase in PHASES:
            self._wrap(owner, name, functools.partial(self._in_phase, phase))
        for owner, name in DISK:
            self._wrap(owner, name, self._counted)
        self._wrap(envelope.Sealing, "write", self._half_written)
        self._mode = Operations(self.tick)
        self._mode.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)
        for owner, name, original in reversed(self._undo):
            setattr(owner, name, original)

    def _wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)
        self._undo.append((owner, name, original))

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return wrapper(original, *args, **kwargs)

        setattr(owner, name, wrapped)

    def _in_phase(self, phase: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        before, self._phase = self._phase, phase
        try:
            return original(*args, **kwargs)
        finally:
            self._phase = before

    def _counted(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self.tick()
        if self._fault == "full" and original.__name__ != "unlink" and self._is_full():
            self.failed = original.__name__
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*args, **kwargs)

    def _half_written(self, original: Any, sealing: Any, data: Any) -> Any:
        if self.is_due() and self._fault == "kill":
            half = memoryview(data).cast("B")
            original(sealing, half[: len(half) // 2])
            sealing._file.flush()
        self.tick()
        if self._fault == "full" and self._is_full():
            half = memoryview(data).cast("B")
            original(sealing, half[: len(half) // 2])
            # Where a full disk shows: in the file's own write.
            sealing._error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return len(data)
        return original(sealing, data)

    def _is_full(self) -> bool:
        """Count what is done to the disk by itself, and tell whether there is no room for it."""
        due = self._plan == Plan("disk", self.counts["disk"])
        self.counts["disk"] += 1
        self.raised += due
        return due

    def is_due(self) -> bool:
        if self._plan is None or os.getpid() != self._pid:
            return False  # a worker that was forked has inherited all of this
        return self._plan == Plan(self._phase, self.counts[self._phase])

    def tick(self) -> None:
        """Count one thing that is done, and fail instead if it is the planned one."""
        due = self.is_due()
        self.counts[self._phase] += 1
        if due and self._fault == "kill":
            if self._log is not None:
                with self._log.open("a") as log:
                    log.write(f"{self._plan}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        if due and self._fault == "hang":
            time.sleep(3600)


class Operations(TorchDispatchMode):
    """Tells of every operation of torch, backward's and the optimizer's included."""

    def __init__(self, tick: Callable[[], None]) -> None:
        super().__init__()
        self._tick = tick

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self._tick()
        return func(*args, **(kwargs or {}))
