"""Optimizers: made, cleared, stepped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from instep.watching.driven import is_driven
from instep.watching.patches import is_blind, uncompiled

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from instep.watching.seam import Seam


class _Running(NamedTuple):
    """A step that has begun. Optimizers that are made of others step those inside of it."""

    name: str
    frame: FrameType
    has_closure: bool
    backwards: int
    """Whose gradients wait for it."""
    clears: int


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
        with seam.safely():
            recorder.noticed()
        done = original(self, *args, **kwargs)
        with seam.safely():
            set_to_none = args[0] if args else kwargs.get("set_to_none", True)
            recorder.zeroed(self, set_to_none=bool(set_to_none))
        return done

    seam.patches.replace(Optimizer, "add_param_group", take)
    seam.patches.replace(Optimizer, "zero_grad", zero)
    _hook_steps(seam)


def _hook_steps(seam: Seam) -> None:
    recorder = seam.recorder
    running: list[_Running] = []

    @uncompiled
    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not seam.is_on or is_blind():
            return
        with seam.safely():
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            recorder.noticed()
            name = recorder.optimizer(optimizer)
            if is_driven():
                # Its backwards go past us: what it does in a window is its own business.
                recorder.book.grown.clear()
                recorder.opaque((name,), "instep.Stepper")
            frame = sys._getframe(1)  # noqa: SLF001  # torch's own, around the step
            if running:
                running[:] = [step for step in running if _is_around(step.frame, frame)]
            waiting, clears = recorder.fresh[name], recorder.clears[name]
            running.append(_Running(name, frame, callable(closure), waiting, clears))
            recorder.sampler.before_step(optimizer, name)

    @uncompiled
    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if not seam.is_on or is_blind():
            return
        with seam.safely():
            seam.stepped = True
            name = recorder.optimizer(optimizer)
            frame, step = sys._getframe(1), None  # noqa: SLF001
            while running and (step is None or step.frame is not frame):
                step = running.pop()
            if any(outer.name == name for outer in running):
                return  # the step of what wraps it is the one that counts
            closure = step is not None and step.has_closure and _is_folded(seam, step)
            recorder.stepped(optimizer, scaler=seam.scaler, closure=closure)

    for handle in (
        register_optimizer_step_pre_hook(before),
        register_optimizer_step_post_hook(after),
    ):
        seam.patches.later(handle.remove)


def _is_around(outer: FrameType, frame: FrameType | None) -> bool:
    """Say whether a frame is still running: a step that failed never came to its end."""
    while frame is not None and frame is not outer:
        frame = frame.f_back
    return frame is not None


def _is_folded(seam: Seam, step: _Running) -> bool:
    """Say whether the closure of a step did more than what a loop would have done before it."""
    inside = seam.recorder.fresh[step.name] - step.backwards
    cleared = seam.recorder.clears[step.name] > step.clears
    return inside > 1 or (inside == 1 and step.backwards > 0 and cleared)
