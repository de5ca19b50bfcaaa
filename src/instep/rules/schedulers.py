"""What the rules about schedulers ask: whether one counts its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.rules.view import View
    from instep.trace import Schedule

_OF_TORCH = {
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR",
    "OneCycleLR", "PolynomialLR", "SWALR", "SequentialLR", "StepLR",
}  # fmt: skip
_PACKAGES = {"", "torch", "optim", "lr_scheduler", "transformers", "diffusers"}


def counts_calls(view: View, schedule: Schedule) -> bool:
    """Say whether each call moves the scheduler on by one, as torch's own do.

    Those that follow a metric, that are told the epoch, or of a class that nobody knows may do
    anything.
    """
    if schedule.explicit or schedule.unit == "metric":
        return False
    type_ = _type(view, schedule)
    return schedule.unit is not None if type_ is None else _is_known(type_)


def may_count_calls(view: View, schedule: Schedule) -> bool:
    """Say the same where nothing is known about the scheduler but how it is called."""
    if schedule.explicit or schedule.unit == "metric":
        return False
    type_ = _type(view, schedule)
    return type_ is None or _is_known(type_)


def _type(view: View, schedule: Schedule) -> str | None:
    type_ = view.facts.get(schedule.scheduler or "", {}).get("type")
    return type_ if isinstance(type_, str) else None


def _is_known(type_: str) -> bool:
    """Say whether it is a class of torch, or one of the functions that make a LambdaLR.

    >>> _is_known("torch.optim.lr_scheduler.StepLR"), _is_known("get_cosine_schedule_with_warmup")
    (True, True)
    >>> _is_known("timm.scheduler.CosineLRScheduler"), _is_known("ReduceLROnPlateau")
    (False, False)
    """
    package, _, name = type_.rpartition(".")
    made = name.startswith("get_") and "schedule" in name
    return (name in _OF_TORCH or made) and package.partition(".")[0] in _PACKAGES
