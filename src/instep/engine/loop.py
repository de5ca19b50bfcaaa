"""Where a stepper is: which window is open, which loop it belongs to, what is to be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.errors import StateError, WindowError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from instep.engine.core import Core
    from instep.engine.feed import Feed
    from instep.engine.state import Resume
    from instep.engine.window import Window


class Loop:
    """One stepper's place in its training: at most one window open, at most one loop running."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.index = 0
        self.window: Window | None = None
        self.feed: Feed | None = None
        self.sizes: Mapping[str, int] | None = None
        self.pending: Resume | None = None

    def require_no_window(self) -> None:
        """Raise if a window is open: windows of one stepper do not nest."""
        if self.window is not None and self.window.is_open:
            raise WindowError(
                "a window was opened inside a window.",
                why=f"window {self.window.index} is open, and its gradients would mix with the new "
                f"one's.",
                fix="let its loop end, or call window.close() or window.discard() first. For "
                "several optimizers pass them to one Stepper.",
                more="window-states",
            )

    def resume(self, sizes: Mapping[str, int] | None) -> Resume | None:
        """Begin a loop: return the saved place to continue from, if one was loaded.

        It stays pending until a window has opened, so that an error on the way loses nothing.
        """
        self.require_no_window()
        self.core.scaling.read()
        resumed = self.pending
        if resumed is not None and resumed.sizes != (None if sizes is None else dict(sizes)):
            raise StateError(
                f"the saved window has sizes {resumed.sizes}, this loop has {sizes}.",
                why="the state was saved inside a loop, and continues only in the same one.",
                fix="use the sizes it was saved with, or call stepper.discard() to start anew.",
                more="resume",
            )
        self.sizes = sizes
        return resumed

    def open(self, window: Window, resumed: Resume | None) -> Window:
        """Make this the open window: every lane begins, or continues where it was saved."""
        self.require_no_window()
        lanes = self.core.lanes.values()
        try:
            for lane in lanes:
                if resumed is None or resumed.opens(lane):
                    window.open_lane(lane)
                if resumed is not None:
                    resumed.restore(lane)
        except BaseException:
            self.core.discard(lanes, "exception")
            raise
        self.window = window
        self.pending = None
        self.index += 1
        return window

    def finish(self) -> None:
        """Note that the loader ended."""
        self.feed = None
        self.pending = None
        if self.core.recorder is not None:
            self.core.recorder.epoch_ended()

    def abandon(self) -> None:
        """Discard what a loop that was left has still open; never step, this may be a finaliser."""
        if self.window is not None and self.window.is_open:
            self.window.discard()
        self.feed = None
