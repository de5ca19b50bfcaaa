"""What all seams share: the recorder, what was replaced, and a net under every one of them."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from instep.reports.escape import visible
from instep.watching.onlookers import dispatching, leave, overriding
from instep.watching.patches import Patches
from instep.watching.voice import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.watching.onlookers import Left
    from instep.watching.recorder import Recorder

_MOST_FAULTS = 3


class Seam:
    """The side of the watcher that user code runs through."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.patches = Patches()
        self.net = _Net(self)
        self.scaler: str | None = None
        """The scaler whose `step` is running."""
        self.stepped = False
        """An optimizer was stepped in it."""
        self.faults: list[str] = []
        self.on_fault: Callable[[str], object] = say

    @property
    def is_on(self) -> bool:
        """Whether anything is recorded."""
        return self.patches.is_on

    def safely(self) -> _Net:
        """Catch whatever goes wrong in the watcher: it is told, and the job goes on."""
        return _Apart(self) if dispatching() or overriding() else self.net

    def fault(self, error: BaseException) -> None:
        """Take note of a mistake of ours; after a few of them the watcher lets go."""
        text = "".join(traceback.format_exception(error)[-3:]).strip()
        self.faults.append(text)
        if len(self.faults) == 1:
            self.on_fault(
                f"instep: the watcher failed ({type(error).__name__}: {visible(str(error))}); "
                "the job is not affected.\n"
            )
        if len(self.faults) >= _MOST_FAULTS:
            self.patches.is_open = False


class _Net:
    """A context manager that is cheap to enter, because every event goes through one."""

    __slots__ = ("_seam",)

    def __init__(self, seam: Seam) -> None:
        self._seam = seam

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False  # nothing, or somebody who wants the job to end
        self._seam.fault(error)
        return True


class _Apart(_Net):
    """The same, out of the modes that are on."""

    __slots__ = ("_left",)

    def __init__(self, seam: Seam) -> None:
        super().__init__(seam)
        self._left: Left | None = None

    def __enter__(self) -> None:
        with self._seam.net:
            self._left = leave()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if self._left is not None:
            self._left.back()
        return super().__exit__(kind, error, trace)
