"""The outer loop: windows over a loader, one update each, and what leaving it early does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from contextlib import nullcontext
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, Self

from instep.engine.checks import count_of
from instep.engine.declare import LOSS
from instep.engine.gradients import to_host
from instep.engine.window import Window
from instep.errors import SetupError, WindowError
from instep.trace.place import here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from torch import Tensor

    from instep.engine.feed import Feed
    from instep.engine.loop import Loop, Run
    from instep.engine.position import ResumeBy
    from instep.engine.window import Counts

OnExit = Literal["discard", "flush"]


class Windows:
    """Iterate it for windows; enter it with `with` to choose what leaving early does.

    A plain `for` cannot tell `break` from an exception, so an abandoned one discards the open
    window.
    """

    def __init__(
        self,
        loop: Loop,
        loader: Iterable[Any],
        *,
        sizes: Mapping[str, int],
        count: Callable[[Any], object] | None,
        on_exit: OnExit,
        resume: ResumeBy = "count",
    ) -> None:
        if on_exit not in ("discard", "flush"):
            raise SetupError(
                f"on_exit is {on_exit!r}.",
                why='a window left early is thrown away ("discard") or updated with what it has '
                '("flush").',
                fix='pass on_exit="discard" or on_exit="flush".',
                more="leaving-early",
            )
        self._loop = loop
        self._loader = loader
        self._sizes = sizes
        self._frame = math.lcm(*sizes.values())
        self._count = count
        self._on_exit = on_exit
        self._resume = resume
        self._is_managed = False
        self._run: Run | None = None
        self._window: Window | None = None
        self._is_finished = False

    def __len__(self) -> int:
        """Windows in one pass, if the loader knows its length."""
        if not isinstance(self._loader, Sized):
            message = f"{type(self._loader).__name__} has no length, so its windows have none"
            raise TypeError(message)
        return math.ceil(len(self._loader) / self._frame)

    def __iter__(self) -> Iterator[Window]:
        if self._on_exit == "flush" and not self._is_managed:
            raise WindowError(
                'on_exit="flush" needs `with`.',
                why="a plain for loop cannot tell a break from an exception, so nothing can be "
                "updated safely after it was left.",
                fix='with stepper.windows(..., on_exit="flush") as windows: for window in windows: '
                "...",
                more="leaving-early",
            )
        return self._windows()

    def _windows(self) -> Iterator[Window]:
        loop, together = self._loop, self._loop.core.together
        self._is_finished = False
        loop.require_no_window()
        if together is not None:
            together.begin_loop()
            together.streams.begin()
        # Nothing is open yet that would tell other ranks of an error: iter(loader) may raise, too.
        with nullcontext() if together is None else together.guard():
            resumed = loop.begin(self._sizes)
            feed = loop.feed(self._loader, resumed, by=self._resume)
        self._run = run = loop.start(feed, self._sizes)
        ahead = self._frame if self._count is not None else 1
        window: Window | None = None
        try:
            if resumed is None or not resumed.has_open_window:
                loop.safe_point()
            # A saved window may have had its last batch already: it comes first, whatever is left.
            taken = resumed.taken if resumed else 0
            is_new = resumed is None
            has_more = feed.draw_ahead(max(ahead - taken, 0)) if ahead > 1 else feed.draw_ahead(1)
            has_more = has_more or (resumed is not None and resumed.has_open_window)
            has_more = self._agreed(has_more)
            while has_more or (resumed is not None and resumed.has_open_window):
                window = self._window = loop.open(
                    Window(
                        loop.core,
                        tuple(loop.core.lanes.values()),
                        index=loop.index,
                        sizes=self._sizes,
                        feed=feed,
                        taken=taken,
                        counts=self._counts(feed, taken),
                    ),
                    resumed,
                )
                resumed, taken = None, 0
                yield window
                self._leave(window)
                loop.safe_point()
                if together is not None and not window.is_closed:
                    together.is_in_step = True
                has_more = self._agreed(feed.draw_ahead(ahead), window)
            # Of many ranks, none had a batch: each opens the windows of all.
            if is_new and window is None:
                loop.mention_nothing(feed)
            loop.finish()
            loop.stop(run)
            self._is_finished = True
        finally:
            # Never a step here: this may run in a finaliser, where errors are swallowed.
            if not self._is_managed:
                self._abandon(run, window)

    def _agreed(self, has_more: bool, window: Window | None = None) -> bool:  # noqa: FBT001
        """Return whether the loop goes on: as long as any rank has batches, on all of them."""
        together = self._loop.core.together
        if together is None:
            return has_more
        if window is None or not window.is_closed:
            together.has_more = has_more
            return together.begin(self._sizes)
        return together.any_has_more

    def _counts(self, feed: Feed, taken: int) -> list[Counts] | None:
        if self._count is None:
            return None
        waiting = feed.waiting()[: self._frame - taken]
        return [{}] * taken + [_host_counts(self._count(batch)) for batch in waiting]

    def _leave(self, window: Window) -> None:
        """Deal with a window whose inner loop was left by `break`, or never begun."""
        if not window.is_open:
            return
        if not window.was_iterated:
            window.discard()
            raise WindowError(
                f"window {window.index} was never iterated.",
                why="the outer loop counts updates, the inner one micro-batches; without the inner "
                "loop there is nothing to update with.",
                fix="for window in stepper.windows(...): for batch in window: ...",
                more="window-states",
            )
        if self._on_exit == "flush" or window.is_complete or window.has_no_more:
            window.close()
            return
        self._loop.core.warn(
            "a window was thrown away: its inner loop was left by break.",
            why=f"{window.taken} of its micro-batches had been handed out, and a plain loop cannot "
            "tell a break that means `update now` from one that means `forget it`.",
            fix='call window.close() or window.discard() before the break, or use on_exit="flush".',
            more="leaving-early",
        )
        window.discard()

    def _abandon(self, run: Run, window: Window | None, error: BaseException | None = None) -> None:
        """Leave a loop: its own window is discarded if it is still open, nobody else's."""
        together = self._loop.core.together
        place = None if together is None or self._is_finished else here()
        near = f", near {PurePath(place.path).name}:{place.line}" if place is not None else ""
        why = run.feed.failure
        if window is not None and window.is_open:
            window.abandon(error, why or f"it left a window, by a break or an error{near}")
        self._loop.stop(run)
        if together is None or self._is_finished or not together.is_in_step:
            return
        autosave = self._loop.core.autosave
        is_save_due = autosave is not None and autosave.is_due_on_all(together)
        # After the last window of all ranks nobody waits for this one any more.
        is_done = window is not None and window.is_closed and not together.any_has_more
        if run.feed.failure or is_save_due or not is_done:
            why = why or f"it left its loop, by a break or an error of its own{near}"
            together.give_up(why, error)

    def __enter__(self) -> Self:
        self._is_managed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        window = self._window
        if window is not None and window.is_open and kind is None and self._on_exit == "flush":
            window.close()
        if self._run is not None:
            self._abandon(self._run, window, error)
        self._is_managed = False
        self._run = self._window = None


def _host_counts(counted: object) -> Counts:
    """Read what count= returned; counts made on a device are fetched here, once per window."""
    terms = counted if isinstance(counted, Mapping) else {LOSS: counted}
    numbers = {name: count_of(items) for name, items in terms.items()}
    return {name: _number(items) for name, items in numbers.items()}


def _number(items: float | Tensor) -> float:
    return items if isinstance(items, int | float) else to_host([items])[0]
