"""A recorded micro-step, or a few side by side, and all of one shape, replayed in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.engine.sources import Inputs
    from instep.fast.deferral import Stash


class Recording:
    """One micro-step of one shape, or several that run side by side."""

    def __init__(self, inputs: Inputs, device: torch.device, width: int = 1) -> None:
        self.inputs = inputs
        self.width = width
        self.graph = torch.cuda.CUDAGraph()
        self.unit = torch.zeros((), dtype=torch.float64, device=device)
        """What one item weighs."""
        self.items: list[Any] = []
        """What each micro-step counts: a number, or something on the device."""
        self.reached: frozenset[int] = frozenset()
        self.touches: frozenset[int] = frozenset()
        """Slots that it adds to, or writes."""
        self.writes: frozenset[int] = frozenset()
        """Slots that it writes to without reading them: as the first of a window, and only so."""
        self.window = 0
        """The window that its inputs have begun."""
        self._unit: float | None = None

    def run(self, given: Sequence[Any], unit: float) -> None:
        """Replay it on as many pieces of the same shape as it is wide."""
        if self.width == 1:
            self.inputs.put(given[0], 0)
        else:
            for place, one in enumerate(given):
                self.inputs.put(one, place)
        if unit != self._unit:
            self.unit.fill_(unit)
            self._unit = unit
        self.graph.replay()


class Series:
    """The recordings of one shape: singles in a round that share products, and wide ones.

    A wide one stands for as many singles as it has branches. What is left when no further wide one
    is full goes through singles.
    """

    def __init__(
        self,
        singles: Sequence[Recording],
        stash: Stash,
        wide: Sequence[Recording] = (),
        first: Recording | None = None,
    ) -> None:
        self._singles = singles
        self._wide = wide
        self._stash = stash
        self._first = first
        """Stands in for the one that makes a window's first products, if nothing adds before."""
        self.most = wide[0].width if wide else 1
        """How many pieces it takes at once at most."""
        self._round = len(singles)
        self._is_first = False
        self._position = 0
        self._window = 0
        self._batch: Any = None

    def writes(self, pieces: int) -> frozenset[int]:
        """Return the slots that a window of nothing but so many pieces of this shape writes first.

        Before a round is complete nothing is multiplied, and what is left of one is added.
        """
        first = self._first
        is_enough = first is not None and pieces >= max(first.width, self._round)
        return first.writes if first is not None and is_enough else frozenset()

    def begin(self, batch: Any, *, is_first: bool) -> None:
        """Start a window; what one that was given up has left here is forgotten."""
        self._position = 0
        self._is_first = is_first
        self._batch = batch
        self._window += 1

    @property
    def width(self) -> int:
        """How many pieces it takes at once now, if there are so many."""
        return self.most if self._position % self.most == 0 or self._round == 1 else 1

    def next(self, count: int) -> Recording:
        """Return the one to replay for this many pieces: 1, or its width."""
        position = self._position
        end = position + count
        if self._is_first and end >= self._round:
            assert self._first is not None  # noqa: S101 -- a window begins with it only if it is
            self._is_first = False
            found = self._first
        elif count == 1:
            found = self._singles[position]
        else:
            found = self._wide[position // count % len(self._wide)]
        self._position = end % self._round
        if found.window != self._window:
            found.window = self._window
            found.inputs.begin(self._batch)
        return found

    def finish(self) -> None:
        """Multiply what an unfinished round has left."""
        if self._position:
            self._stash.flush(self._position)
            self._position = 0
