"""What windows and loops share: lanes, loss scale, precision, and how windows end together."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from instep.engine.close import close
from instep.engine.fused_close import Pending, close_fused
from instep.engine.memory import reason_of
from instep.engine.transaction import Kept
from instep.errors import WindowError, four_lines, warn
from instep.splits.sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.engine.autosave import Autosave
    from instep.engine.lane import Lane
    from instep.engine.precision import Precision
    from instep.engine.ranks.together import Together
    from instep.engine.recorder import Recorder
    from instep.engine.scaling import Scaling
    from instep.engine.update import Update


@dataclass
class Core:
    """The parts of a stepper that its windows work with."""

    lanes: dict[str, Lane]
    scaling: Scaling
    precision: Precision
    keep_gradients: bool
    raise_if_empty: bool
    recorder: Recorder | None
    together: Together | None = None
    """The other ranks, if there are any."""
    left_at: dict[int, Any] = field(default_factory=dict)
    """Where each scheduler was left at its last step in this loop."""
    sizes: Sizes = field(default_factory=Sizes)
    """How many samples fit, for splits that find out."""
    kept_buffers: Kept = field(default_factory=Kept)
    autosave: Autosave | None = None
    """Who is told of every place that a run can be continued from."""
    _warned: set[str] = field(default_factory=set)

    def lane(self, optimizer: str | None) -> Lane:
        """Return the lane of that name; without a name there must be only one."""
        if optimizer is None and len(self.lanes) == 1:
            return next(iter(self.lanes.values()))
        if optimizer in self.lanes:
            return self.lanes[optimizer]
        names = ", ".join(map(repr, self.lanes))
        several = len(self.lanes) > 1
        raise WindowError(
            "nothing says which optimizer this is for."
            if optimizer is None
            else f"optimizer={optimizer!r} names none of this stepper's optimizers.",
            why=f"it has {names}, and each call is for one of them."
            if several
            else "it has only one, which needs no name.",
            fix=f"pass optimizer={next(iter(self.lanes))!r}, for example."
            if several
            else "leave optimizer= out.",
            more="several-optimizers",
        )

    def close(self, lanes: Iterable[Lane], updates: list[Update]) -> None:
        """Close these lanes; the loss scale follows later, once for all, in `settle`.

        Each update is noted at once, so that none is lost if what comes after it raises.
        """
        with self.precision:
            for lane in lanes:
                self.conclude(lane)
                scale = self.scaling.scale
                launched: Update | Pending
                try:
                    if self.together is not None:
                        launched = self.together.close(
                            lane, scale, keep_gradients=self.keep_gradients
                        )
                    elif lane.is_flat:
                        launched = close_fused(lane, scale, keep_gradients=self.keep_gradients)
                    else:
                        launched = close(lane, scale, keep_gradients=self.keep_gradients)
                except BaseException as error:
                    if self.recorder is not None:
                        self.recorder.discarded(lane, reason_of(error))
                    raise
                if isinstance(launched, Pending):
                    launched.then = partial(self._follow_later, lane, scale, _rates(lane))
                    lane.pending = launched
                    updates.append(cast("Update", launched))
                    # Some things need the outcome now: the next loss scale, a trace, an error.
                    if self.scaling.enabled or self.recorder is not None or self.raise_if_empty:
                        self.conclude(lane)
                    continue
                updates.append(launched)
                self._follow(lane, scale, launched)

    def conclude(self, lane: Lane) -> None:
        """Do what follows from the lane's last update, if that waits for its numbers."""
        pending, lane.pending = lane.pending, None
        if pending is not None:
            pending.resolve()

    def conclude_all(self) -> None:
        """Do so for every lane: at the end of a loop, and before a state is saved."""
        for lane in self.lanes.values():
            self.conclude(lane)

    def _follow(self, lane: Lane, scale: float, update: Update) -> None:
        """Note an update, warn if it was skipped, and advance its schedulers if it was not."""
        if update.skipped != "empty":
            self.scaling.record(overflowed=update.skipped == "non-finite")
        self._warn_of(update)
        if self.recorder is not None:
            self.recorder.closed(lane, update, scale if self.scaling.enabled else None)
        if update.skipped is None:
            self._schedule(lane)
        if self.recorder is not None:
            self.recorder.scheduled(lane, update)

    def _follow_later(
        self, lane: Lane, scale: float, rates: list[tuple[Any, Any]], update: Update
    ) -> None:
        """Do so as if it were still the close: what was set by hand since then came after it."""
        by_hand = [(group, group["lr"]) for group, rate in rates if group["lr"] is not rate]
        for group, rate in rates:
            group["lr"] = rate
        self._follow(lane, scale, update)
        for group, rate in by_hand:
            group["lr"] = rate

    def settle(self) -> None:
        """Choose the next loss scale for all that closed, and take open windows along."""
        old = self.scaling.scale
        if not self.scaling.pending:
            return
        ratio = self.scaling.update()
        if self.recorder is not None:
            self.recorder.scaled(old, self.scaling.scale)
        for lane in self.lanes.values():
            lane.rescale(ratio)

    def between_micro_batches(self, *, is_last: bool) -> None:
        """Tell whoever saves that the run can be continued from here; after the last, it closes."""
        if self.autosave is not None and not is_last:
            self.autosave.at_safe_point(between_windows=False)

    def complain_if_empty(self, updates: Iterable[Update]) -> None:
        """Raise for an empty window, if the user asked for it."""
        if self.raise_if_empty and any(update.skipped == "empty" for update in updates):
            raise WindowError(
                "window closed with 0 items.",
                why="no backward declared an item (all targets ignored?), so its mean loss is 0/0. "
                'Nothing was updated, and empty="raise" asks to stop.',
                fix='pass empty="skip" to go on with the next window.',
                more="empty-window",
            )

    def _schedule(self, lane: Lane) -> None:
        """Advance the lane's schedulers, and notice if somebody else does, too."""
        for scheduler in lane.schedulers:
            left_at = self.left_at.get(id(scheduler))
            found_at = getattr(scheduler, "last_epoch", None)
            if left_at is not None and found_at != left_at:
                self.warn(
                    f"a {type(scheduler).__name__} moves faster than its optimizer.",
                    why="it was stepped by hand as well; a scheduler passed to Stepper advances at "
                    "every update by itself.",
                    fix="remove scheduler.step() from the loop, or do not pass it to Stepper.",
                    more="schedulers",
                )
            scheduler.step()
            self.left_at[id(scheduler)] = getattr(scheduler, "last_epoch", None)

    def _warn_of(self, update: Update) -> None:
        if update.skipped == "empty" and not update.terms and update.micro_batches:
            self.warn(
                f"a window of {update.optimizer!r} closed without any backward.",
                why="its micro-batches came and went, and window.backward() was never called for "
                "it, so nothing was updated.",
                fix="call window.backward(loss, items=...) for each micro-batch.",
                more="empty-window",
            )
        # With loss scaling, overflows are part of the game until the scale itself is small.
        if update.skipped == "non-finite" and self.scaling.scale <= 1.0:
            self.warn(
                f"an update of {update.optimizer!r} was skipped: its gradient is inf or NaN.",
                why="the loss or a backward was not finite. A mean over nothing does that (0/0) if "
                "its count is on the device and so cannot be looked at before backward.",
                fix='look at update.skipped; for masked means pass the sum with reduction="sum", '
                "or a count on the host.",
                more="non-finite",
            )

    def warn(self, what: str, *, why: str, fix: str, more: str) -> None:
        """Warn, once per stepper and message."""
        if what not in self._warned:
            self._warned.add(what)
            text = four_lines(what, why=f"{why} (Said once.)", fix=fix, more=more)
            warn(text)

    def discard(self, lanes: Iterable[Lane], reason: str) -> None:
        """End open windows without an update."""
        for lane in lanes:
            if lane.is_open:
                lane.end()
                if self.recorder is not None:
                    self.recorder.discarded(lane, reason)


def _rates(lane: Lane) -> list[tuple[Any, Any]]:
    """Return the parameter groups of a lane, each with the rate that it has."""
    groups = (group for optimizer in lane.optimizers for group in optimizer.param_groups)
    return [(group, group["lr"]) for group in groups]
