"""One writer at a time at one path: threads of this process, and other processes.

Threads wait for the whole of a write, so that what was saved later is what stays. Processes wait
only while names change, under a lock on `<name>.lock`, which goes with whoever holds it, however
that ends: a file that a killed process left locks nobody out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from io import FileIO
from typing import TYPE_CHECKING, BinaryIO
from weakref import WeakValueDictionary

from instep.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

if sys.platform != "win32":  # locks of another kind there: processes are not kept apart
    import fcntl

PATIENCE = 30.0
"""Seconds that a writer waits for another process, which needs a few milliseconds."""
PAUSE = 0.01


class _Place:
    """A path at which this process writes."""

    def __init__(self) -> None:
        # The same thread may come again: a handler of a signal that saves.
        self.turn = threading.RLock()
        self.is_held = False
        """Whether the thread whose turn it is keeps other processes away."""
        self.file: FileIO | None = None
        """What is locked for that, or about to be.

        Always in here: Ctrl-C may come between any two calls, and a lock that nobody knows of any
        more would keep this very process away.
        """

    def let_go(self) -> None:
        """Let other processes in."""
        if self.file is not None:
            _unlock(self.file.fileno())
            self.file.close()
            self.file = None


class _Places:
    """Those of this process; a fork begins without any, whoever held one when it was made."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        # A handler that saves may come while the same thread is in here.
        self._guard = threading.RLock()
        self._known: WeakValueDictionary[Path, _Place] = WeakValueDictionary()

    def at(self, path: Path) -> _Place:
        """Return the place of a path, the same one as long as anybody has it."""
        if self._pid != os.getpid():
            self._begin()
        with self._guard:
            place = self._known.get(path)
            if place is None:
                place = self._known[path] = _Place()
            return place


_places = _Places()


def lock_of(path: Path) -> Path:
    """Return the name of the lock between processes that write at a path."""
    return path.with_name(f"{path.name}.lock")


@contextlib.contextmanager
def one_thread(path: Path) -> Iterator[None]:
    """Let one thread of this process at a time write at this path."""
    place = _places.at(path)
    with place.turn:
        yield


@contextlib.contextmanager
def one_process(path: Path) -> Iterator[None]:
    """Let one process at a time change what is at this path; raise if another one does not end."""
    place = _places.at(path)
    with place.turn:
        if place.is_held:
            yield
            return
        name = lock_of(path)
        try:
            place.let_go()  # of what an interrupt has left
            _acquire(place, name, path)
            place.is_held = True
            yield
        finally:
            is_held, place.is_held = place.is_held, False
            if is_held and place.file is not None:
                name.unlink(missing_ok=True)
            place.let_go()


def mark(file: BinaryIO) -> None:
    """Mark a file as being written, as long as it is open; where there are locks."""
    _try_to_lock(file.fileno())


def is_marked(path: Path) -> bool:
    """Whether somebody has this file open who has marked it."""
    try:
        with path.open("rb") as file:
            return _try_to_lock(file.fileno()) is False
    except OSError:
        return False


def remove_unless_marked(path: Path) -> None:
    """Remove a file, unless somebody is writing it, or that cannot be known."""
    # Somebody else may be faster.
    with contextlib.suppress(OSError), path.open("rb") as file:
        if _try_to_lock(file.fileno()):
            path.unlink()


def _acquire(place: _Place, name: Path, path: Path) -> None:
    """Lock the file of this name; where there are no locks, nothing is held then."""
    until = time.monotonic() + PATIENCE
    while True:
        place.file = FileIO(name, "ab")
        is_ours = _try_to_lock(place.file.fileno())
        if is_ours and _is_still(place.file.fileno(), name):
            return
        place.file.close()
        place.file = None
        if is_ours is None:
            name.unlink(missing_ok=True)
            return
        if time.monotonic() > until:
            # Its cause is one of the disk: a run that saves itself goes on and tries again.
            raise _busy(path) from OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        time.sleep(PAUSE)


def _is_still(descriptor: int, name: Path) -> bool:
    """Whether what was locked has its name: who held it before has removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), name.stat())
    except FileNotFoundError:
        return False


def _try_to_lock(descriptor: int) -> bool | None:
    """Return whether the lock is ours; None where there are none."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


def _unlock(descriptor: int) -> None:
    if sys.platform != "win32":
        # Closing is not enough: a process that was forked meanwhile has it open, too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _busy(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is being replaced by another process, which does not come to an end.",
        why=f"it has held {path.name}.lock for {PATIENCE:.0f} s, which takes milliseconds "
        "otherwise: it is stopped, or its disk hangs. The checkpoint that was there is as it was.",
        fix="end the other process, or save to another path: two runs that save to one replace "
        "each other's checkpoints.",
        more="checkpoint",
    )
