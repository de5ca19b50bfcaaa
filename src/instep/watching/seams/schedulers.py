"""Schedulers: stepped by the user, and not by their own constructor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LRScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.watching.seam import Seam


def install(seam: Seam) -> None:
    """Watch the schedulers of `torch.optim`, and those that are derived from them."""
    depth = 0

    def step(original: Callable[..., Any], self: LRScheduler, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        if depth == 0:
            with seam.safely():
                explicit = bool(args) or kwargs.get("epoch") is not None
                seam.recorder.scheduled(self, explicit=explicit)
        depth += 1  # one that is made of others steps those
        try:
            return original(self, *args, **kwargs)
        finally:
            depth -= 1

    def initial(original: Callable[..., Any], self: LRScheduler) -> Any:
        nonlocal depth
        depth += 1
        try:
            return original(self)
        finally:
            depth -= 1

    for kind in {LRScheduler, *_subclasses(LRScheduler)}:
        if "step" in vars(kind):
            seam.patches.replace(kind, "step", step)
        if "_initial_step" in vars(kind):
            seam.patches.replace(kind, "_initial_step", initial)


def _subclasses(kind: type) -> set[type]:
    found: set[type] = set(kind.__subclasses__())
    return found.union(*(_subclasses(inner) for inner in found))
