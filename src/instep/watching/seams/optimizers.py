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

    from instep.watching.recorder import Recorder
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
    steps = _Steps(recorder)

    @uncompiled
    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not patches.is_on or is_blind():
            return
        try:
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            recorder.noticed()
            name = recorder.optimizer(optimizer)
            if is_driven():
                # Its backwards go past us: what it does in a window is its own business.
                recorder.book.grown.clear()
                recorder.opaque((name,), "instep.Stepper")
            frame = sys._getframe(1)  # noqa: SLF001  # torch's own, around the step
            steps.begin(name, frame, has_closure=callable(closure))
            recorder.sampler.before_step(optimizer, name, recorder.since.get(name))
        except Exception as error:  # noqa: BLE001
            seam.fault(error)

    @uncompiled
    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if not patches.is_on or is_blind():
            return
        try:
            seam.stepped = True
            step = steps.end(sys._getframe(1))  # noqa: SLF001
            if not steps.is_inside(recorder.optimizer(optimizer)):
                closure = step is not None and step.has_closure and _is_folded(seam, step)
                recorder.stepped(optimizer, scaler=seam.scaler, closure=closure)
        except Exception as error:  # noqa: BLE001
            seam.fault(error)

    for handle in (
        register_optimizer_step_pre_hook(before),
        register_optimizer_step_post_hook(after),
    ):
        patches.later(handle.remove)


class _Steps:
    """Steps that have begun and not ended: what wraps an optimizer steps it inside of its own."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._running: list[_Running] = []

    def begin(self, name: str, frame: FrameType, *, has_closure: bool) -> None:
        if self._running:
            self._running = [step for step in self._running if _is_around(step.frame, frame)]
        waiting, clears = self._recorder.fresh[name], self._recorder.clears[name]
        self._running.append(_Running(name, frame, has_closure, waiting, clears))

    def end(self, frame: FrameType) -> _Running | None:
        step = None
        while self._running and (step is None or step.frame is not frame):
            step = self._running.pop()
        return step

    def is_inside(self, name: str) -> bool:
        """Say whether a step of the same optimizer goes on: that one is what counts."""
        return any(outer.name == name for outer in self._running)


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
