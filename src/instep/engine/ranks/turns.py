"""Who closes when: the windows of several optimizers, closed in the same order on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.engine.feed import END

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from instep.engine.core import Core
    from instep.engine.feed import Feed
    from instep.engine.lane import Lane
    from instep.engine.ranks.together import Together
    from instep.engine.update import Update


def take_alone(feed: Feed, _: int) -> Any:
    """Return the next batch, or END, of a process by itself."""
    return feed.take()


class Turns:
    """The closes of one window.

    frame: how many micro-batches it has where no loader ends; 0 if it was opened by hand.
    """

    def __init__(self, core: Core, together: Together, lanes: Sequence[Lane], frame: int) -> None:
        self._core, self._together = core, together
        self._lanes = lanes
        self._frame = frame
        self._is_over = False

    @classmethod
    def of(cls, core: Core, lanes: Sequence[Lane], frame: int) -> Turns | None:
        """Return the turns of a window, if there are other ranks."""
        return None if core.together is None else cls(core, core.together, lanes, frame)

    def end(self, *, is_replayed: bool) -> None:
        """End the window; what was gathered for it stays for its replay."""
        shards = self._together.shards
        # Once gradients were added up, what was gathered is gone, and ranks that replay their
        # windows may make other numbers of forwards.
        if not is_replayed or (shards is not None and shards.is_reduced):
            self._together.end_window()

    def take(self, feed: Feed, left: int) -> Any:
        """Return the next batch, or END; where every micro-batch needs all ranks, run along.

        left: how many micro-batches the window may still have.
        """
        together = self._together
        if together.padding is None:
            return feed.take()
        # The last one is run: a loader that fails now can be told of.
        together.end_batch()
        if feed.draw_ahead(1):
            together.has_batch(own=True)
            return feed.take()
        while left and together.has_batch(own=False):
            left -= 1
        return END

    @property
    def are_needed(self) -> bool:
        """Whether ranks could close different optimizers."""
        return len(self._lanes) > 1

    def close(
        self, lanes: Sequence[Lane], updates: list[Update], feed: Feed | None, taken: int
    ) -> None:
        """Close these; of several optimizers, all ranks close the same one each time."""
        together = self._together
        together.end_batch()
        together.has_more = feed is not None and feed.draw_ahead(1)
        together.has_ended = feed is not None and not together.has_more
        for lane in lanes:
            if not self.are_needed:
                self._core.close([lane], updates)
                continue
            rest = any(other.is_open for other in self._lanes if other is not lane)
            ends = self._frame > 0 and (taken == self._frame or not together.has_more)
            self._is_over = together.agree_on_next(
                lane.name, self._touched(), is_over=ends and not rest
            ).is_over
            self._core.close([lane], updates)
            if not self._is_over:
                together.go_on()

    def follow(
        self, updates: list[Update], feed: Feed | None, open_lane: Callable[[Lane], None]
    ) -> None:
        """Close what the others close, until they are at the end of the window, too."""
        together = self._together
        while not self._is_over:
            together.has_more = feed is not None and feed.draw_ahead(1)
            together.has_ended = feed is not None and not together.has_more
            turn = together.agree_on_next(None, self._touched(), is_over=False)
            self._is_over = turn.is_over
            closing = [lane for lane in self._lanes if lane.name in turn.closing]
            for lane in closing:
                # Before any of them closes: a close lets go of whole parameters, and to gather
                # them again for a lane that is opened then needs ranks where it is open already.
                if not lane.is_open:
                    open_lane(lane)
            for lane in closing:
                self._core.close([lane], updates)
            if not self._is_over:
                together.go_on()
        for lane in self._lanes:
            if lane.is_open:
                lane.end()

    def _touched(self) -> list[str]:
        return [
            lane.name
            for lane in self._lanes
            if lane.is_open and (lane.micro_batches or lane.is_touched)
        ]
