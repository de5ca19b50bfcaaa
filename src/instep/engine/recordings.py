"""A recorded micro-step, and the few of one shape that are replayed in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from instep.engine.sources import Inputs
    from instep.fast.deferral import Stash


class Recording:
    """One micro-step of one shape."""

    def __init__(self, inputs: Inputs, device: torch.device) -> None:
        self.inputs = inputs
        self.graph = torch.cuda.CUDAGraph()
        self.unit = torch.zeros((), dtype=torch.float64, device=device)
        """What one item weighs."""
        self.items: Any = 0
        self.reached: frozenset[int] = frozenset()
        self._unit: float | None = None

    def run(self, given: Any, unit: float) -> None:
        """Replay it on a piece of the same shape."""
        self.inputs.put(given)
        if unit != self._unit:
            self.unit.fill_(unit)
            self._unit = unit
        self.graph.replay()


class Series:
    """The recordings of one shape: one, or a few that share the products of weight gradients."""

    def __init__(self, members: list[Recording], stash: Stash) -> None:
        self._members = members
        self._stash = stash
        self._position = 0

    def begin(self, batch: Any) -> None:
        """Start a window; what one that was given up has left here is forgotten."""
        self._position = 0
        self._members[0].inputs.begin(batch)

    def next(self) -> Recording:
        """Return the one to replay."""
        found = self._members[self._position]
        self._position = (self._position + 1) % len(self._members)
        return found

    def finish(self) -> None:
        """Multiply what an unfinished round has left."""
        if self._position:
            self._stash.flush(self._position)
            self._position = 0
