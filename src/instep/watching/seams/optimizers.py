"""Optimizers: made, cleared, stepped."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from instep.watching.driven import is_driven
from instep.watching.onlookers import dispatching, is_traced, overriding
from instep.watching.patches import compiler, compiling, flags, uncompiled
from instep.watching.strangers import forget
from instep.watching.warned import passed_over

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from instep.watching.seam import Seam


class _Running:
    """A step that has begun. Optimizers that are made of others step those inside of it."""

    told = has_closure = False
    before = (0, 0)  # with a closure: backwards and clears until then

    def __init__(self, optimizer: Optimizer, name: str, frame: FrameType) -> None:
        self.optimizer = optimizer
        self.name = name
        self.frame = frame
        self.thread = get_ident()
        self._witness = witness = _filled(optimizer)
        self._version = None if witness is None else witness._version  # noqa: SLF001

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
        self.running: list[_Running] = []

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any, frame: FrameType) -> None:
        """Look at everything as it is before a step, and take note that it begins."""
        recorder = self._recorder
        closure = args[1] if len(args) > 1 else kwargs.get("closure") if kwargs else None
        recorder.noticed()
        name = recorder.optimizer(optimizer)
        if is_driven():
            # Its backwards go past us: what it does in a window is its own business.
            recorder.book.grown.clear()
            recorder.opaque((name,), "instep.Stepper")
        self._begin(optimizer, name, frame, closure)
        recorder.sampler.before_step(optimizer, name, recorder.since.get(name))

    def _begin(self, optimizer: Optimizer, name: str, frame: FrameType, closure: object) -> None:
        """Take note that a step has begun."""
        running = self.running
        if running:
            self._leave_behind(frame)
        step = _Running(optimizer, name, frame)
        if closure is not None and callable(closure):
            step.has_closure = True
            step.before = (self._recorder.fresh[name], self._recorder.clears[name])
        running.append(step)

    def _leave_behind(self, frame: FrameType) -> None:
        """Forget steps that an exception has left, and those of a thread that was watched before:
        they end unheard.
        """
        running, here = self.running, get_ident()
        left = [step for step in running if not _is_around(step.frame, frame)]
        running[:] = [step for step in running if step not in left]
        for step in left:
            if step.thread != here and not step.told:
                self._recorder.elsewhere.add()

    def clears(self, optimizer: Optimizer) -> None:
        """Take note of a clear: one at the end of a step, or in a hook behind it, is after it."""
        for step in self.running:
            if step.optimizer is optimizer and not step.told and step.is_over():
                self._tell(step)

    def end(self, frame: FrameType) -> None:
        """Take note that a step has ended, and tell of it."""
        running = self.running
        if not running:
            return
        step = running.pop()
        while running and step.frame is not frame:
            step = running.pop()
        if not running:
            if not step.told:
                self._tell(step, frame.f_back)
            return
        outer = [other for other in running if other.name == step.name]
        if not outer and not step.told:
            self._tell(step, frame.f_back)
        for other in outer:  # the step of what wraps it is the one that counts
            other.told = other.told or step.told

    def left(self) -> None:
        """Forget a step that has begun and ends unheard: another thread is watched by now."""
        if compiling() or not self.running:
            return
        frame = sys._getframe(2)  # noqa: SLF001  # torch's own, around the step
        for step in self.running[:]:
            if step.frame is frame:
                self.running.remove(step)
                if not step.told and self._seam.patches.is_elsewhere:
                    self._recorder.elsewhere.add()

    def _tell(self, step: _Running, frame: FrameType | None = None) -> None:
        seam = self._seam
        step.told = seam.stepped = True
        closure = step.has_closure and self._is_folded(step)
        self._recorder.stepped(
            step.optimizer, scaler=seam.scaler, closure=closure, id_=step.name, frame=frame
        )

    def _is_folded(self, step: _Running) -> bool:
        """Say whether a closure did more than what a loop would have done before the step."""
        backwards, clears = step.before
        inside = self._recorder.fresh[step.name] - backwards
        cleared = self._recorder.clears[step.name] > clears
        return inside > 1 or (inside == 1 and backwards > 0 and cleared)


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

    seam.patches.replace(Optimizer, "add_param_group", take)
    seam.patches.put(Optimizer, "zero_grad", lambda original: _clearing(seam, steps, original))
    _hook_steps(seam, steps)


def _clearing(seam: Seam, steps: _Steps, original: Callable[..., Any]) -> Callable[..., Any]:
    recorder, patches, running = seam.recorder, seam.patches, steps.running
    clearing, scope, threads = recorder.clearing, recorder.book.scope, patches.threads

    @passed_over
    def among(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Do the same where modes are on, which are not to see it."""
        if is_traced():
            return original(self, *args, **kwargs)
        with seam.safely():
            if running:
                steps.clears(self)
            recorder.noticed()
        done = original(self, *args, **kwargs)
        with seam.safely():
            set_to_none = args[0] if args else kwargs.get("set_to_none", True)
            clearing.by_optimizer(self, set_to_none=bool(set_to_none))
        return done

    def zero(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if (
            compiling()
            or compiler() is not None
            or flags._is_compiling_flag  # noqa: SLF001
            or not patches.is_open
            or not (get_ident() == threads.home or threads.hears())
            or not (scope.is_all or scope.holds(self))
        ):
            _leave(seam, self)
            return original(self, *args, **kwargs)
        if dispatching() or overriding():
            return among(self, *args, **kwargs)
        try:  # as `seam.safely` does it, in less time: this is done at every update
            if running:
                steps.clears(self)
            recorder.noticed()
        except Exception as error:  # noqa: BLE001
            seam.fault(error)
        done = original(self, *args, **kwargs)
        try:
            set_to_none = args[0] if args else kwargs.get("set_to_none", True) if kwargs else True
            clearing.by_optimizer(self, set_to_none=bool(set_to_none))
        except Exception as error:  # noqa: BLE001
            seam.fault(error)
        return done

    return zero


def _hook_steps(seam: Seam, steps: _Steps) -> None:
    patches, scope = seam.patches, seam.recorder.book.scope
    threads = patches.threads

    @uncompiled
    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if (
            compiling()
            or compiler() is not None
            or flags._is_compiling_flag  # noqa: SLF001
            or not patches.is_open
            or not (get_ident() == threads.home or threads.hears())
            or not (scope.is_all or scope.holds(optimizer))
        ):
            _pass_over(seam, optimizer)
            return
        frame = sys._getframe(1)  # noqa: SLF001  # torch's own, around the step
        if dispatching() or overriding():
            _among(seam, steps.before, optimizer, args, kwargs, frame)
            return
        try:
            steps.before(optimizer, args, kwargs, frame)
        except Exception as error:  # noqa: BLE001
            seam.fault(error)

    @uncompiled
    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if (
            compiling()
            or compiler() is not None
            or flags._is_compiling_flag  # noqa: SLF001
            or not patches.is_open
            or not (get_ident() == threads.home or threads.hears())
            or not (scope.is_all or scope.holds(optimizer))
        ):
            steps.left()
            return
        if dispatching() or overriding():
            _among(seam, steps.end, sys._getframe(1))  # noqa: SLF001
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


def _pass_over(seam: Seam, optimizer: Optimizer) -> None:
    """Count a step that is made in another thread, and leave its optimizer alone."""
    if _leave(seam, optimizer):
        seam.recorder.elsewhere.add()


def _leave(seam: Seam, optimizer: Optimizer) -> bool:
    """Leave an optimizer alone that is used in another thread; say whether it is."""
    if compiling() or flags._is_compiling_flag or not seam.patches.is_elsewhere:  # noqa: SLF001
        return False
    forget(seam.recorder, (optimizer,))
    return True


def _among(seam: Seam, then: Callable[..., None], *args: Any) -> None:
    """Do something where modes are on, which are not to see it."""
    if not is_traced():
        with seam.safely():
            then(*args)


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
