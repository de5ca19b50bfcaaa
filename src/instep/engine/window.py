"""A window: everything between two updates, as the user holds it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from torch import Tensor

from instep.engine.declare import LOSS, is_sum, rows_of
from instep.engine.feed import END
from instep.engine.memory import reason_of
from instep.engine.naming import BACKWARD, told
from instep.engine.ranks.headers import mark
from instep.engine.ranks.turns import Turns, take_alone
from instep.engine.states import State, require
from instep.errors import WindowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from instep.engine.core import Core
    from instep.engine.declare import Row
    from instep.engine.feed import Feed
    from instep.engine.lane import Lane
    from instep.engine.recorder import Recorder
    from instep.engine.update import Skipped, Update

Counts = Mapping[str, float]


class Window:
    """One window: iterate its micro-batches, call `backward` for each, read the result after.

    Windows come from `stepper.windows(...)`, one per update, or from `with stepper.window()`.
    """

    def __init__(
        self,
        core: Core,
        lanes: Sequence[Lane],
        *,
        index: int,
        sizes: Mapping[str, int] | None = None,
        feed: Feed | None = None,
        taken: int = 0,
        counts: Sequence[Counts] | None = None,
    ) -> None:
        self.index = index
        self.lanes = tuple(lanes)
        self.sizes = sizes
        """Micro-batches per update of each optimizer; None for a window opened by hand."""
        self.taken = taken
        """Micro-batches handed out so far."""
        self.was_iterated = False
        self.is_attempt = False
        """Whether it is replayed when it fails, so that nobody else has to know."""
        self._core, self._feed = core, feed
        self._counts = counts
        self._frame = math.lcm(*sizes.values()) if sizes else 0
        self._only = self.lanes[0] if len(core.lanes) == 1 else None
        self._was_in_hand = False
        self._turns = Turns.of(core, lanes, self._frame)
        self._updates: list[Update] = []
        self._state = State.OPEN

    # -- the inner loop ------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        require(self._state, "iterate")
        if self._feed is None or self.was_iterated:
            by_hand = self._feed is None
            raise WindowError(
                "this window has no micro-batches to iterate.",
                why="it was opened by hand." if by_hand else "they were handed out already.",
                fix="iterate the windows of stepper.windows(loader, size=...), each once.",
                more="window-states",
            )
        self.was_iterated = True
        return self._micro_batches(self._feed)

    def _micro_batches(self, feed: Feed) -> Iterator[Any]:
        precision = self._core.precision
        take = take_alone if self._turns is None else self._turns.take
        try:
            # A window that was saved after a backward may have updates due before its next batch.
            if self._only is None:
                self._end_micro_batch()
            while self._state is State.OPEN and self.taken < self._frame:
                batch = take(feed, self._frame - self.taken)
                if batch is END:
                    break
                self._begin_micro_batch()
                if precision.is_active:
                    precision.enter()
                yield batch
                if precision.is_active:
                    precision.leave()
                feed.finish()
                if self._only is None or self._core.autosave is not None:
                    self._end_micro_batch()
            if self._state is State.OPEN:
                self._close_all()
        finally:
            precision.leave()
            if self._state is State.OPEN:
                self._state = State.LEFT
                self._was_in_hand = feed.in_hand
            # Left by `break`, the batch in hand is gone all the same: the loop goes on after it.
            feed.finish()

    def _begin_micro_batch(self) -> None:
        for lane in self.lanes:
            if not lane.is_open:
                self.open_lane(lane)
            lane.micro_batches += 1
        self.taken += 1
        if self._core.recorder is not None:
            self._core.recorder.drawn()

    def _end_micro_batch(self) -> None:
        """Update what is due; with one optimizer that is the end of the window, and done there."""
        if self._state is State.OPEN and self._only is None:
            self._close_lanes([lane for lane in self.lanes if lane.is_open and self._is_due(lane)])
            self._core.settle()
        self._core.between_micro_batches(is_last=self.taken >= self._frame)

    def open_lane(self, lane: Lane) -> None:
        """Begin a lane's next window inside this one, with its counts if they are known ahead."""
        size = self.sizes[lane.name] if self.sizes else None
        totals = None
        # Counts of one rank are no totals; each term then has a buffer of its own.
        if self._counts is not None and size is not None and self._core.together is None:
            ahead = self._counts[self.taken : self.taken + size]
            names = {name for counts in ahead for name in counts}
            totals = {n: math.fsum(counts.get(n, 0.0) for counts in ahead) for n in names}
        lane.open(totals)
        if self._core.recorder is not None:
            self._core.recorder.opened(lane, size)

    def _is_due(self, lane: Lane) -> bool:
        return self.sizes is not None and lane.micro_batches >= self.sizes[lane.name]

    # -- what the user calls -------------------------------------------------------------------

    @told("window.backward()", BACKWARD)
    def backward(
        self,
        loss: Tensor | Mapping[str, Tensor],
        *,
        items: object = None,
        weight: float | Mapping[str, float] = 1.0,
        reduction: Literal["mean", "sum"] = "mean",
        optimizer: str | None = None,
        retain_graph: bool = False,
    ) -> None:
        """Backpropagate a loss that is the mean over `items` items (or their sum, if so said).

        Several backwards of one optimizer are parts of one mean. Losses that are to be added are
        added before, or passed as a mapping of named terms, with a mapping of items.
        """
        core = self._core
        lane = self._only if optimizer is None else None
        if self._state is not State.OPEN or lane is None or not lane.is_open:
            lane = self._open_lane_named(optimizer)
        summed = reduction != "mean" and is_sum(reduction)
        rows = rows_of(loss, items, weight, self._items_ahead)
        try:
            if core.precision.is_active:
                with core.precision:
                    lane.backward(rows, is_sum=summed, retain_graph=retain_graph)
            else:
                lane.backward(rows, is_sum=summed, retain_graph=retain_graph)
        except BaseException as error:
            self._discard(reason_of(error), error)
            raise
        if self._feed is None:
            lane.micro_batches += 1
        else:
            self._feed.finish()
        if core.recorder is not None:
            self._record(core.recorder, lane, rows, summed=summed)

    def replayed(self, lane: Lane, loss: Tensor, items: float | Tensor) -> None:
        """Note a backward that a recording has made."""
        lane.note(LOSS, loss, items)
        lane.micro_batches += 1
        if self._core.recorder is not None:
            self._record(self._core.recorder, lane, [(LOSS, loss, items, 1.0)], summed=False)

    def due(self, optimizer: str | None = None) -> bool:
        """Whether this optimizer updates at the end of this micro-batch.

        To update it in the middle instead: `if window.due(name): window.close(name)`, after its
        backward. Asking draws the next batch, to know whether this one is the last.
        """
        require(self._state, "due")
        lane = self._core.lane(optimizer)
        if not lane.is_open or self._feed is None:
            return False
        # On many ranks the others may go on, and decide when it closes.
        alone = self._core.together is None
        return self._is_due(lane) or (alone and not self._feed.draw_ahead(1))

    def close(self, optimizer: str | None = None) -> None:
        """Update now: one optimizer by name, or all and so end the window before its loop does."""
        require(self._state, "close")
        if optimizer is None:
            self._close_all()
            return
        # The loss scale waits for the end of the micro-batch: other optimizers may still close.
        self._close_lanes([self._open_lane_named(optimizer)])
        if self.sizes is None:
            self._core.settle()

    def discard(self) -> None:
        """Throw the window away: gradients cleared, no update."""
        require(self._state, "discard")
        self._discard("discarded")

    def abandon(self, error: BaseException | None, said: str) -> None:
        """Throw it away because its loop was left, by an error if that is known."""
        self._discard("discarded", error, said=said)

    # -- what it was -----------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether gradients can still be added."""
        return self._state in (State.OPEN, State.LEFT)

    @property
    def is_closed(self) -> bool:
        """Whether it ran to its end, and every rank with it."""
        return self._state is State.CLOSED

    @property
    def is_left(self) -> bool:
        """Whether its inner loop was left by `break`, and its fate is not decided."""
        return self._state is State.LEFT

    @property
    def is_complete(self) -> bool:
        """Whether every micro-batch had its turn, also if its loop did not run to its end."""
        return self.taken == self._frame and not self._has_work

    @property
    def has_no_more(self) -> bool:
        """Whether there is nothing left to hand out, because the loader has ended."""
        return self._feed is not None and not self._has_work and not self._feed.draw_ahead(1)

    @property
    def _has_work(self) -> bool:
        """Whether a batch was handed out on which nothing was done."""
        return self._was_in_hand or (self._feed is not None and self._feed.in_hand)

    @property
    def updates(self) -> tuple[Update, ...]:
        """Every update that this window made, in order, skipped ones included."""
        return tuple(self._updates)

    @property
    def update(self) -> Update:
        """The one update of this window."""
        return self._result("update")

    @property
    def loss(self) -> float:
        """The loss of the whole window, not of a piece of it."""
        return self._result("loss").loss

    @property
    def losses(self) -> dict[str, float]:
        """The loss of each named term over the whole window, without its weight."""
        return self._result("losses").losses

    @property
    def items(self) -> float:
        """Items the loss is a mean of."""
        return self._result("items").items

    @property
    def grad_norm(self) -> float:
        """Norm of the window's gradient, before clipping."""
        return self._result("grad_norm").grad_norm

    @property
    def skipped(self) -> Skipped | None:
        """None if the parameters were updated, else "empty" or "non-finite"."""
        return self._result("skipped").skipped

    def __repr__(self) -> str:
        done = max((lane.micro_batches for lane in self.lanes), default=0)
        counted = self.taken if self.sizes is not None else done
        return f"Window({self.index}, {self._state.value}, {counted} micro-batches)"

    def __enter__(self) -> Self:
        require(self._state, "backward")
        self._core.precision.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._core.precision.leave()
        if self._state is State.OPEN:
            if kind is None:
                self._close_all()
            else:
                self._discard(reason_of(error), error)

    def _result(self, call: str) -> Update:
        require(self._state, call)
        if len(self._updates) == 1:
            return self._updates[0]
        raise WindowError(
            f"{call} is not one number: this window made {len(self._updates)} updates.",
            why="several optimizers closed in it, or one of them more than once.",
            fix="read window.updates; each has .optimizer, .loss and .grad_norm.",
            more="several-optimizers",
        )

    def _open_lane_named(self, optimizer: str | None) -> Lane:
        require(self._state, "backward")
        lane = self._core.lane(optimizer)
        if not lane.is_open:
            raise WindowError(
                f"the window of {lane.name!r} is not open.",
                why="it was closed in this micro-batch; its next one opens with the next.",
                fix="call backward before close, once per optimizer and micro-batch.",
                more="several-optimizers",
            )
        return lane

    def _items_ahead(self, term: str) -> float | None:
        if self._counts is None or not self.taken:
            return None
        return self._counts[self.taken - 1].get(term)

    def _close_lanes(self, lanes: Sequence[Lane]) -> None:
        before = len(self._updates)
        try:
            if self._turns is None:
                self._core.close(lanes, self._updates)
            else:
                self._turns.close(lanes, self._updates, self._feed, self.taken)
        except BaseException as error:
            self._discard(reason_of(error), error)
            raise
        try:
            self._core.complain_if_empty(self._updates[before:])
        except WindowError as error:
            mark(error)
            self._discard("empty", error)
            raise

    def _close_all(self) -> None:
        if self._turns is not None and self._turns.are_needed:
            try:
                self._turns.follow(self._updates, self._feed, self.open_lane)
            except BaseException as error:
                self._discard(reason_of(error), error)
                raise
        lanes = [lane for lane in self.lanes if lane.is_open]
        if self.sizes is None and len(lanes) > 1:
            # Opened by hand for several optimizers: those that were not used have nothing to end.
            for lane in lanes:
                if not lane.is_touched:
                    lane.end()
            lanes = [lane for lane in lanes if lane.is_open]
        self._close_lanes(lanes)
        self._core.settle()
        self._end(State.CLOSED)

    def _discard(
        self, reason: str, error: BaseException | None = None, *, said: str | None = None
    ) -> None:
        self._core.discard(self.lanes, reason)
        self._end(State.DISCARDED)
        if self._core.together is not None and not self.is_attempt:
            self._core.together.give_up(said or reason, error)

    def _end(self, state: State) -> None:
        self._state = state
        # A window may be held for its results; it must not hold the loader's workers with it.
        self._feed = None
        self._counts = None
        if self._turns is not None:
            self._turns.end(is_replayed=self.is_attempt and state is State.DISCARDED)

    def _record(self, recorder: Recorder, lane: Lane, rows: Sequence[Row], *, summed: bool) -> None:
        for term, _, items, weight in rows:
            known = None if isinstance(items, Tensor) else items
            scaled = self._core.scaling.enabled
            recorder.backward(lane, term, items=known, weight=weight, is_sum=summed, scaled=scaled)
