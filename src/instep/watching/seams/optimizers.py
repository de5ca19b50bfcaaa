"""Optimizers: made, cleared, stepped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from instep.watching.driven import is_driven

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.watching.seam import Seam


def install(seam: Seam) -> None:
    """Watch every optimizer that is made, cleared or stepped."""
    recorder = seam.recorder
    state = {"closure": False}

    def take(original: Callable[..., Any], self: Optimizer, group: Any) -> Any:
        done = original(self, group)
        with seam.safely():
            parameters = self.param_groups[-1]["params"]
            recorder.book.take_group(self, parameters, recorder.place())
        return done

    def zero(original: Callable[..., Any], self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with seam.safely():
            recorder.noticed()
        done = original(self, *args, **kwargs)
        with seam.safely():
            set_to_none = args[0] if args else kwargs.get("set_to_none", True)
            recorder.zeroed(self, set_to_none=bool(set_to_none))
        return done

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not seam.is_on:
            return
        with seam.safely():
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            state["closure"] = callable(closure)
            recorder.noticed()
            name = recorder.optimizer(optimizer)
            if is_driven():
                # Its backwards go past us: what it does in a window is its own business.
                recorder.book.grown.clear()
                recorder.opaque((name,), "instep.Stepper")
            recorder.sampler.before_step(optimizer, name, recorder.since.get(name))

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if not seam.is_on:
            return
        with seam.safely():
            seam.stepped = True
            recorder.stepped(optimizer, scaler=seam.scaler, closure=state["closure"])

    seam.patches.replace(Optimizer, "add_param_group", take)
    seam.patches.replace(Optimizer, "zero_grad", zero)
    for handle in (
        register_optimizer_step_pre_hook(before),
        register_optimizer_step_post_hook(after),
    ):
        seam.patches.later(handle.remove)
