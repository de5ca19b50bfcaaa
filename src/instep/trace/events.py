"""Every kind of event, in one table."""

from instep.trace.base import Event
from instep.trace.created import Created, Fact, Role
from instep.trace.surroundings import (
    WEIGHTS_MOVED,
    Assumed,
    Called,
    Drawn,
    EpochEnd,
    Forward,
    LossKept,
    Measured,
    Mode,
    Opaque,
    Rebound,
    ScalerUpdate,
)
from instep.trace.updates import (
    Backward,
    Clip,
    GradEdited,
    GradRead,
    Schedule,
    Step,
    Unscale,
    WindowDiscarded,
    WindowOpened,
    Zero,
)

_ALL: tuple[type[Event], ...] = (
    Created, Drawn, EpochEnd, Forward, Mode,
    WindowOpened, Backward, GradRead, GradEdited, Unscale, Clip, Step, Zero, WindowDiscarded,
    ScalerUpdate, Schedule,
    LossKept, Rebound, Called, Assumed, Measured, Opaque,
)  # fmt: skip

KINDS: dict[str, type[Event]] = {event.kind: event for event in _ALL}
"""The class of each kind, by the name that it has in JSON."""

__all__ = [
    "KINDS",
    "WEIGHTS_MOVED",
    "Assumed",
    "Backward",
    "Called",
    "Clip",
    "Created",
    "Drawn",
    "EpochEnd",
    "Event",
    "Fact",
    "Forward",
    "GradEdited",
    "GradRead",
    "LossKept",
    "Measured",
    "Mode",
    "Opaque",
    "Rebound",
    "Role",
    "ScalerUpdate",
    "Schedule",
    "Step",
    "Unscale",
    "WindowDiscarded",
    "WindowOpened",
    "Zero",
]
