"""Names that arguments have elsewhere: who calls with one is told which it is here."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from instep.errors import CallError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = ParamSpec("P")
R = TypeVar("R")

_CLIP = "pass clip_norm=1.0 to Stepper: it clips once, before the update."
_SIZE = "leave it out, and iterate stepper.windows(loader, size=4): micro-batches per update."
_PRECISION = 'pass precision="bf16" or precision="fp16" to Stepper.'
_ITEMS = "pass items=: how many samples, tokens or pixels this loss is a mean of."
_LENGTH = "pass size=, for example size=4: micro-batches per update."

STEPPER = {
    "max_norm": _CLIP,
    "max_grad_norm": _CLIP,
    "grad_clip": _CLIP,
    "gradient_clip_val": _CLIP,
    "gradient_clipping": _CLIP,
    "accumulation_steps": _SIZE,
    "accumulate_grad_batches": _SIZE,
    "grad_accum_steps": _SIZE,
    "gradient_accumulation_steps": _SIZE,
    "amp": _PRECISION,
    "autocast": _PRECISION,
    "dtype": _PRECISION,
    "mixed_precision": _PRECISION,
    "grad_scaler": "pass scaler=, with precision='fp16'.",
    "lr_scheduler": "pass scheduler=; it advances once per update.",
    "schedulers": "pass scheduler=: one, or a list of them.",
}
WINDOWS = {
    "size": _LENGTH,
    "accumulation_steps": _LENGTH,
    "accumulate_grad_batches": _LENGTH,
    "grad_accum_steps": _LENGTH,
    "gradient_accumulation_steps": _LENGTH,
    "steps": _LENGTH,
    "window_size": _LENGTH,
}
BACKWARD = {
    "batch_size": _ITEMS,
    "count": _ITEMS,
    "n_items": _ITEMS,
    "num_items": _ITEMS,
    "num_items_in_batch": _ITEMS,
    "num_samples": _ITEMS,
    "num_tokens": _ITEMS,
    "weights": "pass weight=: a number, or one per named term.",
    "gradient": "pass weight=, a number that multiplies the loss.",
}


def told(call: str, names: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a call that Python refuses say what to pass instead of, or as, one of these names."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError:
                # Nothing is asked of a call that is right: this may be one per micro-batch.
                error = _refused(call, function, names, args, kwargs)
                if error is None:
                    raise
            raise error

        return called

    return decorate


def _refused(
    call: str,
    function: Callable[..., object],
    names: Mapping[str, str],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> CallError | None:
    """Return what to raise; None if the arguments fit, or nothing is known about them."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as refused:
        foreign = [name for name in kwargs if name in names and name not in signature.parameters]
        missing = [n for n in names if n in signature.parameters and f"'{n}'" in str(refused)]
        for name in [*foreign, *missing]:
            return CallError(
                f"{call}: {refused}." if name in missing else f"{call} takes no {name}=.",
                why=f"it takes {', '.join(list(signature.parameters)[1:])}.",
                fix=names[name],
                more="porting",
            )
    return None
