"""What a window changes before its update, taken at its start and put back if it is replayed.

Its gradients need no copy: a window begins without any, so that they are just dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.engine import rng
from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from instep.engine.lane import Lane
    from instep.engine.loop import Loop

# Masks and tables of positions can be large, and hardly ever change: such a copy goes to the host,
# and is made again only when torch's counter of in-place changes says so.
LARGE = 2**24

Saved = tuple["nn.Module", str, Tensor, Tensor]


class Kept:
    """Copies of large buffers, from one window to the next."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[Tensor, int, Tensor]] = {}

    def copy(self, buffer: Tensor) -> Tensor:
        """Return a copy of a buffer's values as they are now."""
        if buffer.nbytes < LARGE:
            return buffer.detach().clone()
        held = self._copies.get(id(buffer))
        version = buffer._version  # noqa: SLF001 -- torch's own counter
        if held is None or held[0] is not buffer or held[1] != version:
            held = (buffer, version, buffer.detach().to("cpu", copy=True))
            self._copies[id(buffer)] = held
        return held[2]

    def keep_only(self, buffers: Sequence[Tensor]) -> None:
        """Forget copies of what the models do not hold any more."""
        if self._copies:
            here = {id(buffer) for buffer in buffers}
            self._copies = {key: held for key, held in self._copies.items() if key in here}


class Transaction:
    """Random states, buffers of modules, loss scale, references and counts of one window."""

    def __init__(
        self, loop: Loop, lane: Lane, models: Sequence[nn.Module], batch: Any, kept: Kept
    ) -> None:
        self._loop, self._lane = loop, lane
        self._index = loop.index
        self._random = rng.full_state()
        scaling = loop.core.scaling
        self._scaling = scaling.state_dict(), scaling.outcomes()
        self._references = dict(lane.references)
        buffers = list(_buffers(models))
        kept.keep_only([buffer for _, _, buffer in buffers])
        self._buffers: list[Saved] = [(m, n, buffer, kept.copy(buffer)) for m, n, buffer in buffers]
        # A plain backward fills the gradients of whatever requires them: of inputs, and of
        # parameters that no optimizer has. They are not the window's, and not to be added to twice.
        own = {
            id(p)
            for optimizer in lane.optimizers
            for g in optimizer.param_groups
            for p in g["params"]
        }
        others = [p for model in models for p in model.parameters() if id(p) not in own]
        leaves = [t for t in (*others, *tensors(batch)) if t.requires_grad and t.is_leaf]
        self._grads = [(t, t.grad, None if t.grad is None else t.grad.clone()) for t in leaves]

    @torch.no_grad()
    def roll_back(self) -> None:
        """Put everything back; may be done more than once."""
        for module, name, buffer, copy in self._buffers:
            # A module may also have put another tensor in its place.
            module._buffers[name] = buffer  # noqa: SLF001 -- assignment would ask for types first
            buffer.copy_(copy)
        for tensor, gradient, copy_of in self._grads:
            tensor.grad = gradient
            if gradient is not None and copy_of is not None:
                gradient.copy_(copy_of)
        self._lane.references = dict(self._references)
        self._loop.core.scaling.load_state_dict(*self._scaling)
        self._loop.index = self._index
        rng.restore(self._random)


def _buffers(models: Sequence[nn.Module]) -> Iterator[tuple[nn.Module, str, Tensor]]:
    seen: set[int] = set()
    for model in models:
        for module in model.modules():
            for name, buffer in module._buffers.items():  # noqa: SLF001 -- named_buffers hides owners
                if buffer is not None and not buffer.is_inference() and id(buffer) not in seen:
                    seen.add(id(buffer))
                    yield module, name, buffer
