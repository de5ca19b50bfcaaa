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


class _Running:
    """A step that has begun."""

    def __init__(self, optimizer: Optimizer, *, closure: bool) -> None:
        self.optimizer = optimizer
        self.closure = closure
        self.told = False
        every = (p for group in optimizer.param_groups for p in group["params"])
        self._witness = next((p for p in every if p.grad is not None), None)
        self._version = None if self._witness is None else self._witness._version  # noqa: SLF001

    def is_over(self) -> bool:
        """Say whether the weights have changed; with a closure they do so again and again."""
        if self.closure or self._witness is None:
            return False
        return bool(self._witness._version != self._version)  # noqa: SLF001


class _Steps:
    """The steps that are running: one may call another, of its own class or of what it wraps."""

    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._running: list[_Running] = []

    def begin(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        while self._running and self._running[-1].told:
            self._running.pop()  # it was left by an exception
        self._running.append(_Running(optimizer, closure=callable(closure)))

    def clears(self, optimizer: Optimizer) -> None:
        """Take note of a clear: one at the end of a step, or in a hook behind it, is after it."""
        for step in self._running:
            if step.optimizer is optimizer and not step.told and step.is_over():
                self._tell(step)

    def end(self, optimizer: Optimizer) -> None:
        while self._running and self._running[-1].optimizer is not optimizer:
            self._running.pop()  # those that an exception has left
        if not self._running:
            return
        step = self._running.pop()
        if not step.told:
            self._tell(step)
        # One that calls the step of its own class has made one update, not two.
        for outer in self._running:
            outer.told = outer.told or outer.optimizer is optimizer

    def _tell(self, step: _Running) -> None:
        step.told = True
        self._seam.stepped = True
        recorder = self._seam.recorder
        recorder.stepped(step.optimizer, scaler=self._seam.scaler, closure=step.closure)


def install(seam: Seam) -> None:
    """Watch every optimizer that is made, cleared or stepped."""
    recorder = seam.recorder
    steps = _Steps(seam)

    def take(original: Callable[..., Any], self: Optimizer, group: Any) -> Any:
        done = original(self, group)
        with seam.safely():
            parameters = self.param_groups[-1]["params"]
            recorder.book.take_group(self, parameters, recorder.place())
            recorder.regrouped(self)
        return done

    def zero(original: Callable[..., Any], self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with seam.safely():
            steps.clears(self)
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
            steps.begin(optimizer, args, kwargs)
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
            steps.end(optimizer)

    seam.patches.replace(Optimizer, "add_param_group", take)
    seam.patches.replace(Optimizer, "zero_grad", zero)
    for handle in (
        register_optimizer_step_pre_hook(before),
        register_optimizer_step_post_hook(after),
    ):
        seam.patches.later(handle.remove)
