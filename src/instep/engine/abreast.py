"""Micro-steps side by side: branches of one recording, and the same gradient as one after another.

A small micro-batch leaves most of a device idle: its kernels are short and wait for each other. In
one graph, several micro-steps have nothing to wait for but their turns at the gradient. What fused
layers add goes to the sums directly, in turn (`fast.turns`); every other gradient of a branch is
left apart and added at the end, in the order of the micro-batches.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, TypeVar

import torch

from instep.fast.operators import taking
from instep.fast.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from instep.engine.flat_buffers import FlatBuffers

    Made = TypeVar("Made")

foreach_add_ = torch._foreach_add_


class Streams:
    """The streams of the branches of one device; on the host everything runs in order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sides: list[torch.cuda.Stream] = []

    @property
    def turns(self) -> Turns | None:
        """A new order of turns; None where branches cannot overtake each other."""
        return Turns() if self._device.type == "cuda" else None

    def fork(self, count: int) -> list[contextlib.AbstractContextManager[object]]:
        """Return contexts for that many branches that all begin here; the first goes on here."""
        first: list[contextlib.AbstractContextManager[object]] = [contextlib.nullcontext()]
        if self._device.type != "cuda":
            return first * count
        while len(self._sides) < count - 1:
            self._sides.append(torch.cuda.Stream(self._device))
        main = torch.cuda.current_stream(self._device)
        for side in self._sides[: count - 1]:
            side.wait_stream(main)
        return [*first, *(torch.cuda.stream(side) for side in self._sides[: count - 1])]

    def join(self, count: int) -> None:
        """Go on when that many branches are over."""
        for side in self._sides[: count - 1]:
            torch.cuda.current_stream(self._device).wait_stream(side)


def run_abreast(
    steps: Sequence[Callable[[], Made]], buffers: FlatBuffers, streams: Streams
) -> list[Made]:
    """Run micro-steps side by side; return what each returned."""
    turns = streams.turns
    made: list[Made] = []
    apart: list[list[tuple[Tensor, Tensor]]] = []
    branches = streams.fork(len(steps))
    with warnings.catch_warnings():
        # Gradients of a branch are handed to the stream that remembers them: that is meant so.
        warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
        for number, (step, branch) in enumerate(zip(steps, branches, strict=True)):
            with branch, contextlib.nullcontext() if turns is None else taking(turns):
                if number:
                    with buffers.apart() as found:
                        made.append(step())
                    apart.append(found)
                else:
                    made.append(step())
    streams.join(len(steps))
    for found in apart:
        if found:
            sums, gradients = zip(*found, strict=True)
            foreach_add_(list(sums), list(gradients))
    return made
