"""What windows and loops share: lanes, loss scale, precision, and how windows end together."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from instep.engine.close import close
from instep.errors import InstepWarning, WindowError, four_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.engine.lane import Lane
    from instep.engine.precision import Precision
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
    _warned: set[str] = field(default_factory=set)

    def lane(self, optimizer: str | None) -> Lane:
        """Return the lane of that name; without a name there must be only one."""
        if optimizer is None and len(self.lanes) == 1:
            return next(iter(self.lanes.values()))
        if optimizer in self.lanes:
            return self.lanes[optimizer]
        names = ", ".join(map(repr, self.lanes))
        raise WindowError(
            f"optimizer={optimizer!r} names none of this stepper's optimizers.",
            why=f"it has {names}; each backward feeds exactly one.",
            fix=f"pass optimizer={next(iter(self.lanes))!r}, for example.",
            more="several-optimizers",
        )

    def close(self, lanes: Iterable[Lane], updates: list[Update]) -> None:
        """Close these lanes; the loss scale follows later, once for all, in `settle`.

        Each update is noted at once, so that none is lost if what comes after it raises.
        """
        with self.precision:
            for lane in lanes:
                scale = self.scaling.scale
                update = close(lane, scale, keep_gradients=self.keep_gradients)
                updates.append(update)
                if update.skipped != "empty":
                    self.scaling.record(overflowed=update.skipped == "non-finite")
                if update.skipped == "non-finite":
                    self._warn_nonfinite(lane.name)
                if self.recorder is not None:
                    self.recorder.closed(lane, update, scale if self.scaling.enabled else None)
                if update.skipped is None:
                    for scheduler in lane.schedulers:
                        scheduler.step()
                if self.recorder is not None:
                    self.recorder.scheduled(lane, update)

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

    def _warn_nonfinite(self, name: str) -> None:
        """Say once that an update was skipped; with loss scaling, only if that is not the cause."""
        if name in self._warned or self.scaling.scale > 1.0:
            return
        self._warned.add(name)
        message = four_lines(
            f"an update of {name!r} was skipped: its gradient is inf or NaN.",
            why="the loss or a backward was not finite. A mean over nothing does that (0/0) if its "
            "count is on the device and so cannot be looked at before backward.",
            fix='look at update.skipped; for masked means pass the sum with reduction="sum", or a '
            "count on the host. Said once.",
            more="non-finite",
        )
        warnings.warn(message, InstepWarning, stacklevel=2)

    def discard(self, lanes: Iterable[Lane], reason: str) -> None:
        """End open windows without an update."""
        for lane in lanes:
            if lane.is_open:
                lane.end()
                if self.recorder is not None:
                    self.recorder.discarded(lane, reason)
