"""What a sum of gradients in low precision loses: measured on one parameter, now and then."""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from instep.watching.later import Later, sliced

if TYPE_CHECKING:
    from torch import Tensor

    from instep.trace import Place
    from instep.watching.book import Book
    from instep.watching.entries import Held, Touched
    from instep.watching.gauges import Gauges

_COARSE = frozenset({torch.bfloat16, torch.float16})
_SLICE = 16_384
"""Elements whose sum is made a second time."""
_WINDOWS = 8
"""Measured windows of which the median is told."""


class LowPrecision:
    """Adds up the gradients of one parameter in float32 beside its own sum.

    While a window is measured, a hook on the parameter sees every gradient before autograd adds it;
    it changes nothing. It is there during a backward alone: `torch.autograd.grad` calls hooks as
    well, and adds nothing; and it is put there last, because hooks of the user's own may change
    what is added. Whoever else changes the sum (unscaling, clipping, an edit by hand, or in a hook
    behind the sum) ends the measurement.
    """

    def __init__(self, book: Book, gauges: Gauges) -> None:
        self._book = book
        self._gauges = gauges
        self._looked: Touched | None = None  # what one was chosen from
        self.held: Held | None = None
        """The parameter that is measured at times, if there is any."""
        self._owner: Any = None  # its optimizer, as a weak reference
        self._measures = False  # the window that is open
        self._handle: Any = None
        self._total: Tensor | None = None
        self._added = self._came = 0  # gradients: in the window, and in the latest backward
        self._left: tuple[int, int] | None = None  # the gradient after the latest backward
        self._error: Tensor | None = None
        self._waiting: deque[Later] = deque()
        self._errors: deque[float] = deque(maxlen=_WINDOWS)

    def before_backward(self, *, is_due: bool) -> None:
        """Begin to measure a window, or see whether the sum is still autograd's alone."""
        if self.held is None or not (self._measures or is_due):
            return
        parameter = self.held.parameter
        if parameter is None:
            self._end()
            self.held, self._looked = None, None
            return
        grad = parameter.grad
        if self._measures and self._handle is not None and self._came:
            self._end()  # nobody knows what the backward before has added: it has failed
        elif self._measures and grad is not None and self._left not in {None, _state(grad)}:
            self._end()
        if not self._measures:
            if not is_due:
                return
            self._begin(grad)
        elif grad is None:
            self._total, self._left, self._error, self._added = None, None, None, 0
        self._unhook()
        self._came = 0
        self._handle = parameter.register_hook(self._add)

    def after_backward(self, touched: Touched) -> None:
        """Compare the two sums; in the beginning, choose whose."""
        if self.held is None and self._looked is not touched:
            self._looked = touched
            self._choose(touched)
        if not self._measures or self.held is None:
            return
        parameter = self.held.parameter
        grad = None if parameter is None else parameter.grad
        # Without a hook it was not listened to, as one that begins with a gradient of the user's.
        if self._handle is None or grad is None or grad.layout is not torch.strided:
            self._end()
            return
        self._unhook()
        if self._total is None or not self._is_added_to(grad):
            self._end()
            return
        self._left = _state(grad)
        if self._added > 1:
            missed = torch.linalg.vector_norm(sliced(grad, _SLICE).float() - self._total)
            self._error = missed / torch.linalg.vector_norm(self._total)

    def _is_added_to(self, grad: Tensor) -> bool:
        """Say whether nothing but what was listened to has come to a gradient."""
        if self._left is None:
            return True  # there was none
        key, version = self._left
        return _state(grad) == (key, version + self._came)

    def after_step(self, optimizer: object, name: str, place: Place | None) -> None:
        """End a window of the optimizer that holds the parameter, and tell what was measured."""
        if self._owner is None or self._owner() is not optimizer:
            return
        if self._measures:
            if self._error is not None:
                self._waiting.append(Later(self._error))
            self._end()
        arrived = False
        while self._waiting and self._waiting[0].is_here:
            (error,) = self._waiting.popleft().numbers
            if math.isfinite(error):
                self._errors.append(error)
                arrived = True
        if arrived and self.held is not None:
            self._gauges.show(
                "accumulation-error",
                name,
                median(self._errors),
                unit="relative",
                subject=self.held.label,
                place=place,
            )

    def close(self) -> None:
        """Take back the hook."""
        self._end()

    def _begin(self, grad: Tensor | None) -> None:
        # What is in it already is where both sums begin.
        self._total = None if grad is None else _copied(grad)
        self._left = None if grad is None else _state(grad)
        self._added, self._error, self._measures = 0, None, True

    def _add(self, grad: Tensor) -> None:
        if grad.layout is not torch.strided:
            return
        part = _copied(grad)
        self._total = part if self._total is None else self._total.add_(part)
        self._added += 1
        self._came += 1

    def _unhook(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _end(self) -> None:
        self._unhook()
        self._measures, self._total, self._left, self._error = False, None, None, None

    def _choose(self, touched: Touched) -> None:
        """Take the largest parameter in low precision that gets gradients and is trained."""
        if _is_spread():
            return  # ranks add theirs to the sum
        held = (self._book.parameters.get(key) for key in touched.keys)
        fitting = [one for one in held if one is not None and self._fits(one)]
        self.held = max(fitting, key=_size, default=None)
        if self.held is not None:
            self._owner = next(iter(self._book.owners(self.held)))
            self._errors.clear()

    def _fits(self, held: Held) -> bool:
        parameter = held.parameter
        return (
            parameter is not None
            and parameter.dtype in _COARSE
            and parameter.requires_grad
            and parameter.is_leaf
            and type(parameter.data) is torch.Tensor
            and any(True for _ in self._book.owners(held))
        )


def _copied(grad: Tensor) -> Tensor:
    return sliced(grad, _SLICE).to(torch.float32, copy=True)


def _state(grad: Tensor) -> tuple[int, int]:
    return id(grad), grad._version  # noqa: SLF001  # autograd's own count of changes


def _size(held: Held) -> int:
    return 0 if held.parameter is None else held.parameter.numel()


def _is_spread() -> bool:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return False
    return distributed.get_world_size() > 1
