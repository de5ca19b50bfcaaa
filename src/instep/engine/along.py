"""A loop over `stepper.batches` on one of several ranks: which batch it is in, and how it ends.

All ranks make the same updates. One whose loader has ended comes along to the steps and windows of
the others, with windows of its own that have nothing in them, until all have ended.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from instep.engine.careful import CarefulStep, release
from instep.engine.memory import is_out_of_memory
from instep.engine.ranks.following import follow
from instep.engine.ranks.gathering import SUM
from instep.engine.ranks.headers import Kind, PeerOutOfMemoryError
from instep.engine.transaction import Transaction
from instep.engine.window import Window
from instep.errors import WindowError
from instep.trace.place import here

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from instep.engine.feed import Feed
    from instep.engine.lane import Lane
    from instep.engine.loop import Loop
    from instep.engine.ranks.headers import Said
    from instep.engine.ranks.together import Together


class Along:
    """One rank's part in a loop over `stepper.batches`."""

    def __init__(self, loop: Loop, together: Together, models: Sequence[nn.Module]) -> None:
        self._loop, self._core, self._together = loop, loop.core, together
        self._models = models
        self._outer = together.place
        self._number = together.loops
        self._batches = self._failures = 0
        self._ours: Window | None = None
        """A window of this rank's own that is open already."""
        together.place = (self._number,)

    def begin_batch(self) -> None:
        """Note that a batch is handed out: what is done with it, all ranks do with theirs."""
        self._batches += 1
        self._together.place = (self._number, self._batches)

    def finish(self) -> None:
        """Come along to what the others do, until no rank has a batch any more."""
        together, autosave = self._together, self._core.autosave
        together.place = (self._number,)
        with together.guard():
            while True:
                if autosave is not None:
                    autosave.note_wish(together)
                first = follow(together, "" if autosave is None else autosave.errand)
                if first is None:
                    break
                together.place = first.place
                self._come_along(first)
                together.place = (self._number,)
        together.place = self._outer

    def leave(self, feed: Feed) -> None:
        """Tell the others of a loop that is left before its end, unless they know of it.

        After the last batch it makes no difference, unless they have more to do.
        """
        if self._together.place[:1] != (self._number,):
            # It was put aside, and others have begun since.
            return
        self._together.place = self._outer
        if self._together.is_in_step:
            place = here()
            near = "" if place is None else f", near {PurePath(place.path).name}:{place.line}"
            left = f"it left its loop, by a break or an error of its own{near}"
            is_done = not feed.failure and feed.has_given_all and not self._is_save_due()
            kind = Kind.LEFT if is_done else Kind.FAILED
            self._together.give_up(feed.failure or left, kind=kind)

    def _is_save_due(self) -> bool:
        """Whether the others would wait for this rank to save with them."""
        autosave = self._core.autosave
        return autosave is not None and autosave.is_due_on_all(self._together)

    def _come_along(self, first: Said) -> None:
        lanes, together = self._core.lanes, self._together
        if first.kind is not Kind.BEGIN and self._ours is None:
            self._loop.require_no_window("a loop over stepper.batches() ended on this rank")
        if first.kind is Kind.OPEN and together.padding is not None:
            # What others backpropagate has a gradient here, too, which is this window's.
            self._ours = self._open(list(lanes.values()))
        elif first.kind is Kind.OPEN:
            # The others may have had no memory for what they had opened, and begin anew.
            together.end_window()
            together.begin_window()
        elif first.kind is Kind.NEXT:
            self._open(list(lanes.values())).close()
        elif first.kind is Kind.CLOSE:
            self._close(lanes[first.about], can_retry=first.can_retry)
        elif first.kind is not Kind.BEGIN:
            self._run_along(first)
        elif self._core.autosave is not None:
            self._core.autosave.come_along(first.about)

    def _run_along(self, first: Said) -> None:
        """Take part in what others do with a batch before they close."""
        together = self._together
        if first.kind is Kind.COUNTS:
            together.add_counts({})
        elif first.kind is Kind.SHAPES:
            lane = next(iter(self._core.lanes.values()))
            together.gather([], lane, summed=first.about == SUM)
        else:
            while together.has_batch(own=False):
                pass

    def _open(self, lanes: Sequence[Lane]) -> Window:
        return self._loop.open(Window(self._core, lanes, index=self._loop.index), None)

    def _close(self, lane: Lane, *, can_retry: bool) -> None:
        """Close a window that has nothing in it; can_retry: where the others may replay theirs."""
        if not can_retry:
            window, self._ours = self._ours or self._open([lane]), None
            window.close()
            return
        before = Transaction(self._loop, lane, self._models, (), self._core.kept_buffers)
        step = CarefulStep(self._loop.index, keep_gradients=self._core.keep_gradients)
        try:
            window = self._open([lane])
            window.is_attempt = True
            lane.stepping = self._together.ready(step)
            window.close()
            self._failures = 0
        except RuntimeError as error:
            if step.has_begun or not is_out_of_memory(error):
                raise
            # All ranks have heard of it, and come to the close again.
            self._failures += not isinstance(error, PeerOutOfMemoryError)
            if self._failures > 1:
                raise _no_room() from error
            before.roll_back()
        finally:
            lane.stepping = None
        if self._failures:
            release()


def _no_room() -> WindowError:
    return WindowError(
        "there is no memory for an update with the batches of other ranks.",
        why="the loader of this rank has ended, and it takes part in the others' updates with "
        "nothing of its own; so there is nothing to be made smaller.",
        fix="leave more memory on this device.",
        more="ranks",
    )
