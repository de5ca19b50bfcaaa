"""Events of a window: from the first backward to the update and what follows it."""

from typing import ClassVar, Literal

from instep.trace.base import OnOptimizer, OnOptimizers
from instep.trace.plain import dataclass

Written = Literal["literal", "default", "one", "nowhere"]
"""Where a number is written: itself, as the default of an option, as one that is 1, or nowhere."""


RAISED = "exception"
"""Why nothing came of a step that raised: it was neither made nor skipped."""


@dataclass(frozen=True, slots=True)
class WindowOpened(OnOptimizer):
    """The engine opened a window. Plain loops have none: their windows are rebuilt."""

    kind: ClassVar[str] = "window-opened"

    size: int | None = None  # micro-batches asked for; None: until the window is closed by hand
    index: int | None = None  # updates of this optimizer before it


@dataclass(frozen=True, slots=True)
class Backward(OnOptimizers):
    """Gradients were added into `.grad`.

    Plural `optimizers`, because one backward may dirty several: a generator's loss also fills the
    gradients of the discriminator.
    """

    kind: ClassVar[str] = "backward"

    loss: str | None = None  # id of the loss; its facts are in the Created event of that id
    factor: float | None = None  # product of all multipliers of the loss but the loss scale
    items: float | None = None  # samples, tokens or pixels that the loss is a mean or sum over
    term: str | None = None  # name of the part of the loss that has its own denominator
    scaled: bool | None = None  # went through a scaler's loss scale
    value: float | None = None  # the loss, before factor and scale
    reduction: Literal["mean", "sum"] | None = None  # how the loss was reduced over its items
    parts: tuple[float, ...] = ()  # the multipliers in `factor` one by one: two divisions are two
    models: tuple[str, ...] | None = None  # models that the loss came from


@dataclass(frozen=True, slots=True)
class Zero(OnOptimizers):
    """Gradients were cleared."""

    kind: ClassVar[str] = "zero"

    target: str | None = None  # id of what it was called on, where that is not the optimizer
    set_to_none: bool | None = True  # False: filled with zeros
    complete: bool = True  # False: some parameters of these optimizers kept their gradients


@dataclass(frozen=True, slots=True)
class Unscale(OnOptimizer):
    """Gradients were divided by the loss scale, in place."""

    kind: ClassVar[str] = "unscale"

    scaler: str | None = None
    scale: float | None = None  # what they were divided by


@dataclass(frozen=True, slots=True)
class Clip(OnOptimizers):
    """Gradients were clipped."""

    kind: ClassVar[str] = "clip"

    by: Literal["norm", "value"] = "norm"
    limit: float | None = None  # largest norm, or largest absolute value of an element
    total_norm: float | None = None  # norm before clipping
    norm_type: float | None = None  # 2.0 is Euclidean, inf is the largest absolute value
    scaled: bool | None = None  # the limit was multiplied by the loss scale


@dataclass(frozen=True, slots=True)
class GradRead(OnOptimizers):
    """User code looked at `.grad`."""

    kind: ClassVar[str] = "grad-read"

    parameter: str | None = None  # None: not one parameter in particular
    guarded: bool | None = None  # stands behind a test that the gradient is not None


@dataclass(frozen=True, slots=True)
class GradEdited(OnOptimizers):
    """User code changed `.grad` other than by backward, clearing, unscaling or clipping."""

    kind: ClassVar[str] = "grad-edited"

    factor: float | None = None  # if every gradient was multiplied by it; None: another edit
    parameter: str | None = None  # None: all of them


@dataclass(frozen=True, slots=True)
class Step(OnOptimizer):
    """An optimizer was asked to update: this closes its window, even where it is skipped.

    With a closure, what the closure did is recorded before the step.
    """

    kind: ClassVar[str] = "step"

    skipped: str | None = None  # why the parameters did not change: "nonfinite", "empty", ...
    scaler: str | None = None  # id of the scaler it went through; None: stepped directly
    closure: bool = False
    every: int | None = None  # micro-batches that its gate asks for; None: no gate, or unknown
    every_written: Written | None = None
    """Where the gate's number is written; None: there is no gate, or a job is watched."""
    finite: bool | None = None  # all gradients were finite
    grad_norm: float | None = None  # of the gradients as used, after clipping
    lr: float | None = None  # of the first parameter group
    loss: float | None = None  # mean over the window, where whoever closes it has added it up
    items: float | None = None  # in the window, likewise: counts that stayed on a device till then
    update_ratio: float | None = None  # norm of the change of the weights over norm of the weights


@dataclass(frozen=True, slots=True)
class Schedule(OnOptimizer):
    """A scheduler was stepped; `optimizer` is the one whose learning rate it sets."""

    kind: ClassVar[str] = "schedule"

    scheduler: str | None = None
    unit: Literal["update", "epoch", "metric"] | None = None  # what one step of it stands for
    explicit: bool = False  # it was given the epoch, so its order with the update does not matter
    lr: float | None = None  # of the first parameter group, afterwards


@dataclass(frozen=True, slots=True)
class WindowDiscarded(OnOptimizer):
    """A window was given up and its gradients cleared: no update."""

    kind: ClassVar[str] = "window-discarded"

    reason: str | None = None  # "abandoned", "exception", "out-of-memory", ...
