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

    def take(original: Callable[..., Any], self: Optimizer, group: Any) -> Any:
        done = original(self, group)
        with seam.safely():
            parameters = self.param_groups[-1]["params"]
            recorder.book.take_group(self, parameters, recorder.place())
        return done

    def zero(original: Callable[..., Any], self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        try:  # as `seam.safely` does it, in less time: this is done at every update
            recorder.noticed()
        except Exception as error:  # noqa: BLE001
            seam.fault(error)
        done = original(self, *args, **kwargs)
        try:
            set_to_none = args[0] if args else kwargs.get("set_to_none", True)
            recorder.zeroed(self, set_to_none=bool(set_to_none))
        except Exception as error:  # noqa: BLE001
            seam.fault(error)
        return done

    seam.patches.replace(Optimizer, "add_param_group", take)
    seam.patches.replace(Optimizer, "zero_grad", zero)
    _hook_steps(seam)


def _hook_steps(seam: Seam) -> None:
    recorder, patches = seam.recorder, seam.patches
    state = {"closure": False}

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not patches.is_on:
            return
        try:
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            state["closure"] = callable(closure)
            recorder.noticed()
            name = recorder.optimizer(optimizer)
            if is_driven():
                # Its backwards go past us: what it does in a window is its own business.
                recorder.book.grown.clear()
                recorder.opaque((name,), "instep.Stepper")
            recorder.sampler.before_step(optimizer, name, recorder.since.get(name))
        except Exception as error:  # noqa: BLE001
            seam.fault(error)

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if not patches.is_on:
            return
        try:
            seam.stepped = True
            recorder.stepped(optimizer, scaler=seam.scaler, closure=state["closure"])
        except Exception as error:  # noqa: BLE001
            seam.fault(error)

    for handle in (
        register_optimizer_step_pre_hook(before),
        register_optimizer_step_post_hook(after),
    ):
        patches.later(handle.remove)
