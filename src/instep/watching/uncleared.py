"""Gradients that stay while others of the same optimizer are cleared, as by `encoder.zero_grad()`.

A clear of some parameters says nothing about the others: they may be cleared by hand, put there by
hand, or not be used. So each is followed for a while, from the step that has used its gradient to
the next one. It counts if the gradient was the same tensor all the time, with the same numbers when
the backward began, was added to by that, and was used again.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from instep.watching.later import at_hand, sliced
from instep.watching.unreached import listed

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from instep.trace import Place
    from instep.watching.book import Book
    from instep.watching.entries import Held, Touched
    from instep.watching.gauges import Gauges

_SURE = 8
"""Updates, one after the other, after which it is told."""
_LOOKS = 32
"""Updates of an optimizer that are looked at."""
_LOOKS_ON_DEVICE = 3
"""Those at which numbers are compared where that means to wait for a device."""
_MOST = 256
"""Parameters of one optimizer that are followed."""
_SLICE = 64


class _Kept:
    """One parameter, and its gradient as the latest step or backward has left it."""

    __slots__ = ("added", "count", "grad", "held", "numbers", "version", "weight")

    def __init__(self, held: Held) -> None:
        self.held = held
        self.grad: weakref.ref[Any] | None = None
        self.version = self.weight = 0
        self.numbers: Tensor | None = None
        self.added = False  # to what the step before has used
        self.count = 0

    def now(self) -> Tensor | None:
        """Return its gradient, if it is the one that was seen."""
        parameter = self.held.parameter
        grad = None if parameter is None else parameter.grad
        return grad if grad is not None and self.grad is not None and self.grad() is grad else None

    def is_as_seen(self, *, changes: tuple[int, ...] = (0,)) -> bool:
        """Say whether its gradient is the one that was seen, but for so many changes in place."""
        grad = self.now()
        return grad is not None and grad._version - self.version in changes  # noqa: SLF001

    def see(self, *, closely: bool) -> bool:
        """Take note of what a step has left; false if that cannot be followed."""
        parameter = self.held.parameter
        grad = None if parameter is None else parameter.grad
        if parameter is None or grad is None or type(grad) is not torch.Tensor or grad.is_sparse:
            return False
        self.grad, self.version = weakref.ref(grad), grad._version  # noqa: SLF001
        self.weight, self.added = parameter._version, False  # noqa: SLF001
        self.numbers = sliced(grad, _SLICE).clone() if closely else None
        return True

    def is_used(self) -> bool:
        """Say whether a step has used what a backward was added to."""
        parameter, grad = self.held.parameter, self.now()
        if parameter is None or grad is None or not self.added:
            return False
        is_blank = self.numbers is not None and not self.numbers.any()
        return parameter._version != self.weight and not is_blank  # noqa: SLF001


class _Followed:
    def __init__(self, kept: list[_Kept]) -> None:
        self.kept = kept
        self.looks = 0
        self.waits = False  # for the first backward after a step
        self.place: Place | None = None


class Uncleared:
    """Follows optimizers of which a part is cleared."""

    def __init__(self, book: Book, gauges: Gauges) -> None:
        self._book = book
        self._gauges = gauges
        self._all: dict[str, _Followed] = {}
        self._met: set[str] = set()
        self.follows = False
        """Any optimizer, now: else there is nothing to tell it."""

    def forget(self, name: str) -> None:
        """Drop what is known of an optimizer that has died."""
        self._met.discard(name)
        self._end(name)

    def cleared(self, name: str) -> None:
        """Take note that some gradients of an optimizer were cleared, and not all."""
        if name in self._met:
            return
        self._met.add(name)
        alive = (made.weak() for made in self._book.optimizers.values())
        mine = (one for one in alive if one is not None and self._book.met(one) == name)
        optimizer = next(mine, None)
        if optimizer is not None:
            held = self._book.of_optimizer(optimizer)[:_MOST]
            self._all[name] = _Followed([_Kept(each) for each in held])
            self.follows = True

    def before_backward(self) -> None:
        """See whether gradients that a step has used are still there."""
        for followed in self._all.values():
            if followed.waits:
                followed.waits = False
                followed.kept = [kept for kept in followed.kept if _is_left(kept)]

    def after_backward(self, touched: Touched, place: Place | None) -> None:
        """See which of them were added to."""
        reached = frozenset(touched.keys)
        for followed in self._all.values():
            left = []
            for kept in followed.kept:
                parameter = kept.held.parameter
                is_reached = parameter is not None and id(parameter) in reached
                # Before the first step there is nothing to compare with.
                if kept.grad is None or kept.is_as_seen(changes=(int(is_reached),)):
                    left.append(kept)
                    if kept.grad is not None and is_reached:
                        kept.version += 1
                        kept.added, followed.place = True, followed.place or place
            followed.kept = left

    def edited(self, changes: int) -> None:
        """Take note of a clip or an unscaling: what stands for the sum still does."""
        for followed in self._all.values():
            for kept in followed.kept:
                grad = kept.now()
                if grad is not None and kept.is_as_seen(changes=tuple(range(changes + 1))):
                    kept.version = grad._version  # noqa: SLF001

    def stepped(self, optimizer: Optimizer, name: str) -> None:
        """Count the updates that contain what the one before has used, and tell when it is sure."""
        followed = self._all.get(name)
        if followed is None:
            return
        # A rate of 0 keeps a group out of an update: then its gradients may well wait.
        moves = all(at_hand(group.get("lr")) != 0 for group in optimizer.param_groups)
        followed.looks += 1
        left = []
        for kept in followed.kept:
            if kept.grad is not None and not kept.is_as_seen():
                continue
            kept.count += moves and kept.is_used()
            if kept.see(closely=_is_close(kept, followed.looks)):
                left.append(kept)
        followed.kept, followed.waits = left, True
        sure = [kept for kept in left if kept.count >= _SURE]
        if sure:
            self._gauges.show(
                "gradients-uncleared",
                name,
                float(len(sure)),
                unit="parameters",
                subject=listed(kept.held.label for kept in sure),
                place=followed.place,
            )
        if sure or not left or followed.looks >= _LOOKS:
            self._end(name)

    def _end(self, name: str) -> None:
        self._all.pop(name, None)
        self.follows = bool(self._all)


def _is_left(kept: _Kept) -> bool:
    """Say whether a gradient is as a step has left it: `grad.data.zero_()` is not counted."""
    if kept.grad is None:
        return True
    grad = kept.now()
    if grad is None or not kept.is_as_seen():
        return False
    return kept.numbers is None or torch.equal(sliced(grad, _SLICE), kept.numbers)


def _is_close(kept: _Kept, looks: int) -> bool:
    parameter = kept.held.parameter
    is_here = parameter is not None and parameter.device.type == "cpu"
    return is_here or looks <= _LOOKS_ON_DEVICE
