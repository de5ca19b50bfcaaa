"""Optimizers: made, cleared, stepped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

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


class _Running:
    """A step that has begun. Optimizers that are made of others step those inside of it."""

    __slots__ = (
        "_version", "_witness", "backwards", "clears", "frame", "has_closure", "name", "optimizer",
        "told",
    )  # fmt: skip

    def __init__(
        self, optimizer: Optimizer, name: str, frame: FrameType, *, has_closure: bool
    ) -> None:
        self.optimizer = optimizer
        self.name = name
        self.frame = frame
        self.has_closure = has_closure
        self.told = False
        self.backwards = self.clears = 0
        self._witness = _filled(optimizer)
        self._version = None if self._witness is None else self._witness._version  # noqa: SLF001

    def is_over(self) -> bool:
        """Say whether the weights have changed; with a closure they do so again and again."""
        if self.has_closure or self._witness is None:
            return False
        return bool(self._witness._version != self._version)  # noqa: SLF001


class _Steps:
    """The steps that are running: one may call another, of its own class or of what it wraps."""

    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._recorder = seam.recorder
        self._running: list[_Running] = []

    def begin(self, optimizer: Optimizer, name: str, frame: FrameType, closure: object) -> None:
        """Take note that a step has begun."""
        if self._running:  # some may have been left by an exception
            self._running = [step for step in self._running if _is_around(step.frame, frame)]
        step = _Running(optimizer, name, frame, has_closure=callable(closure))
        step.backwards, step.clears = self._recorder.fresh[name], self._recorder.clears[name]
        self._running.append(step)

    def clears(self, optimizer: Optimizer) -> None:
        """Take note of a clear: one at the end of a step, or in a hook behind it, is after it."""
        for step in self._running:
            if step.optimizer is optimizer and not step.told and step.is_over():
                self._tell(step)

    def end(self, frame: FrameType) -> None:
        """Take note that a step has ended, and tell of it."""
        step = None
        while self._running and (step is None or step.frame is not frame):
            step = self._running.pop()
        if step is None:
            return
        running = self._running
        outer = [other for other in running if other.name == step.name] if running else ()
        if not outer and not step.told:
            self._tell(step)
        for other in outer:  # the step of what wraps it is the one that counts
            other.told = other.told or step.told

    def _tell(self, step: _Running) -> None:
        step.told = self._seam.stepped = True
        inside = self._recorder.fresh[step.name] - step.backwards
        cleared = self._recorder.clears[step.name] > step.clears
        # Whether the closure did more than what a loop would have done before the step.
        folded = inside > 1 or (inside == 1 and step.backwards > 0 and cleared)
        closure = step.has_closure and folded
        self._recorder.stepped(
            step.optimizer, scaler=self._seam.scaler, closure=closure, id_=step.name
        )


def install(seam: Seam) -> None:
    """Watch every optimizer that is made, cleared or stepped."""
    recorder = seam.recorder
    steps = _Steps(seam)

    def take(original: Callable[..., Any], self: Optimizer, group: Any) -> Any:
        done = original(self, group)
        with seam.safely():
            parameters = self.param_groups[-1]["params"]
            used = recorder.witnesses.used(parameters)
            recorder.book.take_group(self, parameters, recorder.place())
            if used is not None:
                recorder.book.optimizers[id(self)].inherits = used
            recorder.regrouped(self)
        return done

    def zero(original: Callable[..., Any], self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        try:  # as `seam.safely` does it, in less time: this is done at every update
            steps.clears(self)
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
    _hook_steps(seam, steps)


def _hook_steps(seam: Seam, steps: _Steps) -> None:
    recorder, patches = seam.recorder, seam.patches

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
            steps.begin(optimizer, name, frame, closure)
            recorder.sampler.before_step(optimizer, name, recorder.since.get(name))
        except Exception as error:  # noqa: BLE001
            seam.fault(error)

    @uncompiled
    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del optimizer, args, kwargs
        if not patches.is_on or is_blind():
            return
        try:
            steps.end(sys._getframe(1))  # noqa: SLF001
        except Exception as error:  # noqa: BLE001
            seam.fault(error)

    for handle in (
        register_optimizer_step_pre_hook(before),
        register_optimizer_step_post_hook(after),
    ):
        patches.later(handle.remove)


def _filled(optimizer: Optimizer) -> Any:
    """Return the first parameter that has a gradient; None if none has."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                return parameter
    return None


def _is_around(outer: FrameType, frame: FrameType | None) -> bool:
    """Say whether a frame is still running: a step that failed never came to its end."""
    while frame is not None and frame is not outer:
        frame = frame.f_back
    return frame is not None
