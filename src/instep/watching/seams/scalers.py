"""Gradient scalers: scaling, unscaling, steps that are skipped, the next scale."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from instep.trace.updates import RAISED

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.amp import GradScaler

    from instep.watching.seam import Seam

_OLD = ("autocast", "GradScaler")


def install(seam: Seam) -> None:
    """Watch `torch.amp.GradScaler`, and the names that are deprecated."""
    recorder = seam.recorder

    def scale(original: Callable[..., Any], self: GradScaler, outputs: Any) -> Any:
        done = original(self, outputs)
        with seam.safely():
            if isinstance(done, torch.Tensor) and self.is_enabled():
                recorder.scaled.clear()  # one loss at a time is waiting for its backward
                loss = outputs.detach() if isinstance(outputs, torch.Tensor) else None
                recorder.scaled[id(done)] = (weakref.ref(done), recorder.scaler(self), loss)
                recorder.sampler.scaled(recorder.scaler(self), self._scale)
        return done

    def update(original: Callable[..., Any], self: GradScaler, *args: Any, **kwargs: Any) -> Any:
        with seam.safely():
            recorder.scaler_updated(recorder.scaler(self))
        return original(self, *args, **kwargs)

    owner = torch.amp.GradScaler
    for name, around in (
        ("scale", scale),
        ("unscale_", _unscaling(seam)),
        ("step", _stepping(seam)),
        ("update", update),
    ):
        seam.patches.replace(owner, name, around)
    for name in _OLD:
        _deprecated(seam, getattr(torch.cuda.amp, name), f"torch.cuda.amp.{name}")


def _unscaling(seam: Seam) -> Callable[..., Any]:
    recorder = seam.recorder
    holds = recorder.book.scope.holds

    def unscale(original: Callable[..., Any], self: GradScaler, optimizer: Any) -> Any:
        if not holds(optimizer):
            return original(self, optimizer)
        # Told before it is done: to do it twice is an error, and this is where it comes from.
        with seam.safely():
            if seam.scaler is None:
                recorder.unscaled(optimizer, recorder.scaler(self))
        done = original(self, optimizer)
        with seam.safely():
            recorder.witnesses.touched((recorder.optimizer(optimizer),))
            recorder.uncleared.edited(1)
        return done

    return unscale


def _stepping(seam: Seam) -> Callable[..., Any]:
    recorder = seam.recorder
    holds = recorder.book.scope.holds

    def step(
        original: Callable[..., Any], self: GradScaler, optimizer: Any, *a: Any, **k: Any
    ) -> Any:
        if not holds(optimizer):
            return original(self, optimizer, *a, **k)
        with seam.safely():
            seam.scaler, seam.stepped = recorder.scaler(self), False
        try:
            done = original(self, optimizer, *a, **k)
        except BaseException:
            _missed(seam, optimizer, RAISED)
            raise
        _missed(seam, optimizer, "nonfinite")
        return done

    return step


def _missed(seam: Seam, optimizer: Any, why: str) -> None:
    """Tell of a step that the scaler did not let through."""
    scaler, seam.scaler = seam.scaler, None
    with seam.safely():
        if not seam.stepped:
            seam.recorder.stepped(optimizer, scaler=scaler, skipped=why)


def _deprecated(seam: Seam, owner: Any, api: str) -> None:
    def made(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        with seam.safely():
            seam.recorder.called(api)
        return original(self, *args, **kwargs)

    seam.patches.replace(owner, "__init__", made)
