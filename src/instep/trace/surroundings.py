"""Events around the windows: batches, modes, losses, and what cannot be seen."""

from typing import ClassVar

from instep.trace.base import Event, OnOptimizers
from instep.trace.plain import dataclass


@dataclass(frozen=True, slots=True)
class Drawn(Event):
    """A batch was drawn, or a piece of one: a patch, a chunk, a slice."""

    kind: ClassVar[str] = "drawn"

    loader: str | None
    index: int | None = None  # batches drawn from it before, in this epoch
    items: float | None = None  # samples, tokens or pixels in the batch
    of: str | None = None  # the loader whose batch this is a piece of; None: a whole batch


@dataclass(frozen=True, slots=True)
class EpochEnd(Event):
    """A loader has no more to give."""

    kind: ClassVar[str] = "epoch-end"

    loader: str | None
    epoch: int | None = None  # epochs of this loader that ended before
    batches: int | None = None  # drawn in this epoch
    of: str | None = None  # as in Drawn: only the pieces of one batch have come to an end


@dataclass(frozen=True, slots=True)
class Forward(Event):
    """A model was called with gradients on."""

    kind: ClassVar[str] = "forward"

    model: str | None
    training: bool | None = None
    sync: bool | None = None  # its backward reduces over ranks: the flag is read in forward
    items: float | None = None  # samples in the input


@dataclass(frozen=True, slots=True)
class Mode(Event):
    """A model was set to train or to eval."""

    kind: ClassVar[str] = "mode"

    model: str | None
    training: bool


@dataclass(frozen=True, slots=True)
class ScalerUpdate(Event):
    """A scaler chose its next scale; it serves all its optimizers at once."""

    kind: ClassVar[str] = "scaler-update"

    scaler: str | None
    old_scale: float | None = None
    new_scale: float | None = None


@dataclass(frozen=True, slots=True)
class LossKept(Event):
    """A loss that still holds its graph was stored."""

    kind: ClassVar[str] = "loss-kept"

    loss: str | None
    into: str | None = None  # the name it was added or appended to, as the source spells it
    outlives: bool | None = None  # that name outlives the iteration and is never backpropagated
    renewed: bool = False  # but begins anew every so many iterations


@dataclass(frozen=True, slots=True)
class Rebound(Event):
    """A name, attribute or layer that stood for a known object now stands for another."""

    kind: ClassVar[str] = "rebound"

    name: str  # as the source spells it, such as "model.head"
    was: str | None = None  # id of what it stood for, or of the model it is a part of
    now: str | None = None
    parameters: bool | None = None  # parameters were replaced by new ones


@dataclass(frozen=True, slots=True)
class Called(Event):
    """An API was used by a name that matters in itself, such as a deprecated one."""

    kind: ClassVar[str] = "called"

    api: str  # fully qualified, such as "torch.cuda.amp.autocast"


@dataclass(frozen=True, slots=True)
class Assumed(Event):
    """A condition that could not be known was taken one way: what a finding holds under."""

    kind: ClassVar[str] = "assumed"

    condition: str  # source text
    holds: bool


@dataclass(frozen=True, slots=True)
class Measured(OnOptimizers):
    """A number that only a running job has."""

    kind: ClassVar[str] = "measured"

    quantity: str  # "accumulation-error", "memory", "gradients-missing", "micro-batches", ...
    value: float
    unit: str | None = None  # "bytes", "relative", "parameters", ...
    subject: str | None = None  # the parameter, model or rank it was measured on


WEIGHTS_MOVED = "weights changed between a backward and its step"
"""What is opaque where an optimizer does more than to step."""


@dataclass(frozen=True, slots=True)
class Opaque(OnOptimizers):
    """Something happened that cannot be followed: the windows of these optimizers are unknown."""

    kind: ClassVar[str] = "opaque"

    what: str  # as the source spells it, or the name of the framework that manages the loop
    ids: tuple[str, ...] = ()  # losses, models and scalers that it was given
