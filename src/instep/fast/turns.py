"""Turns: where micro-steps run side by side, each gradient is still added to by one at a time.

A product that adds to a gradient reads it and writes it back. Two of them at once would lose one's
part, and in another order the sum would round differently. So the branches of a recording take
turns at every slot, in the order of their micro-batches: the sum is, to the last bit, the one of
micro-steps that ran one after the other.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Mark(Protocol):
    """A place in a stream of work, as `torch.cuda.Event` is one."""

    def record(self) -> None:
        """Be here, in the current stream."""

    def wait(self) -> None:
        """Let the current stream wait for it."""


class Turns:
    """Who has added to which slot last. Branches are recorded one after the other."""

    def __init__(self, mark: Callable[[], Mark] = torch.cuda.Event) -> None:
        self._make = mark
        self._last: dict[int, Mark] = {}

    @contextlib.contextmanager
    def taken(self, number: int) -> Iterator[None]:
        """Wait until those before have added to a slot; those who come next wait for this."""
        before = self._last.get(number)
        if before is not None:
            before.wait()
        yield
        done = self._last[number] = self._make()
        done.record()
