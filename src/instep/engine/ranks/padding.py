"""Micro-batches for a rank that has none left, where every forward and backward needs all ranks.

With `sync="micro-batch"`, FSDP gathers parameters in each forward and adds up gradients in each
backward. A rank without a batch runs its last one again and backpropagates zeros: what it adds is
nothing, but it is there. Its random states and buffers are as before then.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from instep.engine import rng
from instep.engine.replay import Kept
from instep.errors import SetupError
from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from instep.engine.ranks.together import Together
    from instep.splits.plan import Piece

Call = tuple["nn.Module", tuple[Any, ...], dict[str, Any]]


class Padding:
    """Remembers what sharded models were called with in the last micro-batch."""

    def __init__(self, roots: Sequence[nn.Module]) -> None:
        self._roots = roots
        self._calls: list[Call] = []
        self._outputs: list[Tensor] = []
        self._is_new = True
        self._handles: list[Any] = []

    def begin(self) -> None:
        """Watch the models, for the time of a window."""
        if self._handles:
            return
        here = weakref.ref(self)

        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            held = here()
            if held is not None and torch.is_grad_enabled():
                held._note(module, args, kwargs)  # noqa: SLF001 -- its own

        def after(_: nn.Module, __: object, output: Any) -> None:
            held = here()
            if held is not None and torch.is_grad_enabled():
                held._outputs += [t for t in tensors(output) if t.requires_grad]  # noqa: SLF001

        for root in self._roots:
            first = root.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
            self._handles += [first, root.register_forward_hook(after)]

    def end(self) -> None:
        """Watch no more; what was seen last is kept for windows without a batch."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._outputs = []
        self._is_new = True

    def _note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_new:
            self._calls, self._outputs, self._is_new = [], [], False
        self._calls.append((module, args, kwargs))

    def next_batch(self) -> None:
        """Note that calls belong to another micro-batch from here on."""
        self._is_new = True

    @property
    def can_run(self) -> bool:
        """Whether there was a micro-batch to run again."""
        return bool(self._calls)

    def run(self) -> None:
        """Run the last micro-batch again, for nothing."""
        random = rng.full_state()
        kept = Kept(self._roots)
        calls, self._calls = self._calls, []
        self._outputs, self._is_new = [], False
        try:
            for module, args, kwargs in calls:
                module(*args, **kwargs)
            self.backward_nothing()
        finally:
            self._calls = calls
            kept.put_back()
            rng.restore(random)

    def backward_nothing(self) -> None:
        """Backpropagate zeros through what was computed in this micro-batch."""
        outputs, self._outputs = self._outputs, []
        if outputs:
            torch.autograd.backward(outputs, [torch.zeros_like(each) for each in outputs])


def padded(pieces: Iterable[Piece], together: Together) -> Iterator[Piece]:
    """Yield the pieces of a batch; run along as long as other ranks have more."""
    waiting = iter(pieces)
    while True:
        piece = next(waiting, None)
        if not together.has_batch(own=piece is not None):
            return
        if piece is not None:
            yield piece


def require_one_lane(lanes: Mapping[str, object]) -> None:
    """Refuse several optimizers where every backward needs all ranks."""
    if len(lanes) > 1:
        raise SetupError(
            'several named optimizers with sync="micro-batch".',
            why="each would have backwards of its own, and a rank that has no batch left cannot "
            "know which.",
            fix='pass sync="window", or a list of optimizers, which update together.',
            more="ranks",
        )


def refuse_by_hand() -> None:
    """Refuse a window of which nobody knows when its next micro-batch begins."""
    raise SetupError(
        'stepper.window() with sync="micro-batch".',
        why="every forward and backward needs all ranks there, so that they agree on each "
        "micro-batch before it; in a window by hand nothing says that one begins, and ranks that "
        "make other numbers of them would end each other's processes.",
        fix="iterate stepper.windows(loader, size=...), or call stepper.step(batch, loss_fn, "
        'split=...); or pass sync="window" to Stepper.',
        more="ranks",
    )
