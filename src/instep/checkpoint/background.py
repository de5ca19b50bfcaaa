"""Writing while training goes on: a thread, and a handle that knows how it ended."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Writing:
    """A checkpoint that is being written, or was; what `stepper.save` returns."""

    def __init__(self, path: Path, updates: int, write: Callable[[], None]) -> None:
        self.path = path
        self.updates = updates
        """Updates that were made when it was saved."""
        self._write = write
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, *, wait: bool) -> None:
        """Write now, or begin to in a thread of its own; Python waits for it before it ends."""
        if wait:
            self._write()
            return
        self._thread = threading.Thread(target=self._run, name=f"instep saves {self.path.name}")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001 -- raised by `wait`, in the thread that asks
            self._error = error

    @property
    def is_done(self) -> bool:
        """Whether it is on the disk, or failed."""
        return self._thread is None or not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until it is on the disk; raise if it could not be written."""
        if self._thread is not None:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __repr__(self) -> str:
        state = "written" if self.is_done else "being written"
        return f"Writing({str(self.path)!r}, {self.updates} updates, {state})"
