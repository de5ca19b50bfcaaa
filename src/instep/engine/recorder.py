"""The engine's side of the trace: what it does, told as events with the user's line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.trace import (
    Backward,
    Clip,
    Drawn,
    EpochEnd,
    ScalerUpdate,
    Schedule,
    Step,
    Trace,
    Unscale,
    WindowDiscarded,
    WindowOpened,
    Zero,
    here,
)

if TYPE_CHECKING:
    from instep.engine.lane import Lane
    from instep.engine.update import Update

LOADER, SCALER = "loader", "scaler"


class Recorder:
    """Turns the engine's moves into events; a stepper without a trace has none of this."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._batches = 0
        self._updates: dict[str, int] = {}

    def opened(self, lane: Lane, size: int | None) -> None:
        """Note that a lane opened a window."""
        index = self._updates.get(lane.name, 0)
        self._trace.record(WindowOpened(lane.name, size=size, index=index, place=here()))

    def drawn(self) -> None:
        """Note that a micro-batch was handed to the loop body."""
        self._trace.record(Drawn(LOADER, index=self._batches, place=here()))
        self._batches += 1

    def epoch_ended(self) -> None:
        """Note that the loader has no more to give."""
        self._trace.record(EpochEnd(LOADER, batches=self._batches, place=here()))
        self._batches = 0

    def backward(
        self,
        lane: Lane,
        term: str,
        *,
        items: float | None,
        weight: float,
        is_sum: bool,
        scaled: bool,
    ) -> None:
        """Note one backward; a count that is still on a device is unknown."""
        self._trace.record(
            Backward(
                (lane.name,),
                factor=weight,
                items=items,
                term=term,
                scaled=scaled,
                reduction="sum" if is_sum else "mean",
                place=here(),
            )
        )

    def closed(self, lane: Lane, update: Update, scale: float | None) -> None:
        """Note everything a close did, in the order it did it."""
        place, record, name = here(), self._trace.record, lane.name
        if scale is not None:
            record(Unscale(name, SCALER, scale, place=place))
        if lane.clip_norm is not None:
            norm = update.grad_norm
            record(
                Clip((name,), "norm", lane.clip_norm, total_norm=norm, norm_type=2.0, place=place)
            )
        if lane.clip_value is not None:
            record(Clip((name,), "value", lane.clip_value, place=place))
        record(
            Step(
                name,
                skipped=update.skipped,
                scaler=SCALER if scale is not None else None,
                finite=update.skipped != "non-finite",
                grad_norm=update.grad_norm * update.clip_factor,
                lr=_rate(lane),
                loss=update.loss,
                items=update.items,
                place=place,
            )
        )

    def scheduled(self, lane: Lane, update: Update) -> None:
        """Note what followed the update: schedulers, and the gradients cleared."""
        place, record, name = here(), self._trace.record, lane.name
        if update.skipped is None:
            self._updates[name] = self._updates.get(name, 0) + 1
            for index in range(len(lane.schedulers)):
                scheduler = f"{name}.scheduler{index}"
                record(Schedule(name, scheduler, "update", lr=_rate(lane), place=place))
        record(Zero((name,), place=place))

    def scaled(self, old: float, new: float) -> None:
        """Note that the loss scale was chosen anew."""
        self._trace.record(ScalerUpdate(SCALER, old, new, place=here()))

    def discarded(self, lane: Lane, reason: str) -> None:
        """Note that a window was given up."""
        self._trace.record(WindowDiscarded(lane.name, reason=reason, place=here()))


def _rate(lane: Lane) -> float | None:
    rate = lane.optimizers[0].param_groups[0].get("lr")
    return None if rate is None else float(rate)
