"""Training without an optimizer: weights that are changed by hand, by gradients nobody clears."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from instep.watching.later import Later, sliced

if TYPE_CHECKING:
    from torch import Tensor

    from instep.trace import Place
    from instep.watching.book import Book
    from instep.watching.gauges import Gauges

_MOST_NODES = 4096
"""Of a graph, that are looked through for a parameter."""
_LOOKS = 8
"""Backwards that are compared with what was done to the weights after them."""
_SURE = 3
"""Updates by hand, one after the other, after which it is told."""
_SLICE = 1024
_NEAR = 0.01
"""Relative: a change of the weights that is a multiple of the gradient but for rounding."""


class ByHand:
    """Follows one leaf of the losses of a job that steps no optimizer.

    An update is known by what it does: the change of the weight is a negative multiple of the
    gradient as it was. It is told if the gradient then grows by the next backward all the same:
    the same tensor, changed in place once, and by nobody else.
    """

    def __init__(self, book: Book, gauges: Gauges) -> None:
        self._book = book
        self._gauges = gauges
        self._leaf: weakref.ref[Any] | None = None
        self._before: tuple[Tensor, Tensor] | None = None  # weight and gradient after a backward
        self._grad: weakref.ref[Any] | None = None
        self._version = 0
        self._added = 0  # backwards in the gradient
        self._looks = 0
        self._updates = 0
        self._waiting: list[Later] = []

    def before_backward(self, root: Any) -> None:
        """See what was done since the last backward."""
        if self._looks > _LOOKS or not isinstance(root, torch.Tensor):
            return
        leaf = None if self._leaf is None else self._leaf()
        if leaf is None:
            self._looks += 1
            found = _leaf(root.grad_fn)
            is_free = found is not None and not self._is_held(found)
            self._leaf = weakref.ref(found) if is_free else None
            self._before, self._added, self._updates = None, 0, 0
            return
        if self._before is None:
            return
        if not self._is_untouched():
            self._before, self._added, self._updates = None, 0, 0
            self._looks += 1
            return
        weight, grad = self._before
        moved = sliced(leaf, _SLICE) - weight
        along = (moved * grad).sum() / (grad * grad).sum()
        rest = (moved - along * grad).norm() / moved.norm()
        # `grad.data.zero_()` is not counted by PyTorch, and clears all the same.
        is_kept = (sliced(leaf.grad, _SLICE) == grad).all().to(rest.dtype)
        self._waiting.append(Later(torch.stack([along, rest, is_kept])))

    def after_backward(self, place: Place | None) -> None:
        """Take note of what a backward has left, and tell what is certain."""
        leaf = None if self._leaf is None else self._leaf()
        if self._looks > _LOOKS or leaf is None or leaf.grad is None or leaf.grad.is_sparse:
            return
        self._looks += 1
        self._added += 1
        self._grad, self._version = weakref.ref(leaf.grad), leaf.grad._version  # noqa: SLF001
        weight, grad = sliced(leaf, _SLICE), sliced(leaf.grad, _SLICE)
        self._before = (weight.clone(), grad.clone())
        while self._waiting and self._waiting[0].is_here:
            along, rest, is_kept = self._waiting.pop(0).numbers
            self._updates = self._updates + 1 if along < 0 and rest < _NEAR and is_kept else 0
        if self._updates >= _SURE:
            count = float(self._added)
            self._gauges.show("updates-by-hand", None, count, unit="backwards", place=place)

    def _is_held(self, leaf: Tensor) -> bool:
        """Say whether an optimizer has it, and may come to its step yet."""
        held = self._book.parameters.get(id(leaf))
        return held is not None and any(True for _ in self._book.owners(held))

    def _is_untouched(self) -> bool:
        """Say whether the gradient is as the last backward has left it."""
        leaf = None if self._leaf is None else self._leaf()
        grad = None if leaf is None else leaf.grad
        known = None if self._grad is None else self._grad()
        if grad is None or known is None or grad is not known:
            return False
        return bool(known._version == self._version)  # noqa: SLF001


def _leaf(node: Any) -> Tensor | None:
    """Return the largest leaf among the first that a graph leads to."""
    seen, waiting, found = {node}, [node], None
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor) and (found is None or leaf.numel() > found.numel()):
            found = leaf
        for below, _ in () if node is None else node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
    return found
