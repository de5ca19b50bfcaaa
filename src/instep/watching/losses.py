"""Losses: their names, their factors, and how many items they are means of."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch

from instep.watching.spelling import spelled

if TYPE_CHECKING:
    from torch import Tensor

    from instep.trace import Fact, Place
    from instep.watching.graph import Reading
    from instep.watching.recorder import Recorder

_MOST_FACTORS = 8
"""Different factors at one place after which they are taken for unknown."""


class Losses:
    """What is known about the losses of a job."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._factors: dict[Place | None, set[float | None]] = defaultdict(set)
        self._names: dict[Place | None, str] = {}
        self._items: dict[str, list[float]] = {}  # by loss, in the open window

    def factor(
        self, reading: Reading, place: Place | None
    ) -> tuple[float | None, tuple[float, ...]]:
        """Return the factor of a loss and its parts, unless it is another one all the time."""
        factor = reading.factor
        factor = None if factor is None else _rounded(factor)
        seen = self._factors[place]
        if len(seen) <= _MOST_FACTORS:
            seen.add(factor)
        if factor is None or len(seen) > _MOST_FACTORS:
            return None, ()
        return factor, tuple(map(_rounded, reading.parts or ()))

    def introduce(self, root: Any, reading: Reading, place: Place | None) -> str:
        """Return the id of a loss, and tell what is known about it."""
        facts = self._recorder.facts
        id_ = self._names.get(place)
        if id_ is None:
            said = spelled(root, self._recorder.book.skip) or "loss"
            id_ = self._names[place] = f"{said}@{place}" if said in facts else said
        known: dict[str, Fact] = {"type": reading.kind, "reduction": reading.reduction}
        if reading.coupled:
            known["coupled"] = True
        items = _plain(reading.items)
        if items is not None:
            window = self._items.setdefault(id_, [])
            window.append(items)
            if min(window) != max(window):
                known["ragged"] = True
        if facts.get(id_, {}).get("ragged"):
            known["ragged"] = True
        self._recorder.fact(id_, "loss", place, **known)
        return id_

    def window_closed(self) -> None:
        """Forget the items of a window."""
        self._items.clear()


def root_of(tensors: Any) -> Tensor | None:
    """Return the loss of a backward; None if there are several."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if isinstance(tensors, list | tuple) and len(tensors) == 1:
        first = tensors[0]
        return first if isinstance(first, torch.Tensor) else None
    return None


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")


def _plain(items: Any) -> float | None:
    """Return a number of items, if it is on the host."""
    if items is None:
        return None
    if isinstance(items, torch.Tensor):
        return float(items) if items.device.type == "cpu" and items.numel() == 1 else None
    return float(items)
