"""Losses: their names, their factors, and how many items they are means of."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from instep.watching.later import at_hand
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
        self._factors: dict[Place | None, set[float]] = defaultdict(set)
        self._names: dict[Place | None, str] = {}
        # Kind, reduction, whether it is ragged, whether coupled.
        self._told: dict[str, tuple[str | None, str | None, bool, bool]] = {}
        self._items: dict[str, Any] = {}  # by loss, of its first backward in the open window
        self._spread: dict[str, tuple[float, float]] = {}  # by loss, the fewest and the most in it

    def factor(
        self, reading: Reading, place: Place | None
    ) -> tuple[float | None, tuple[float, ...]]:
        """Return the factor of a loss and its parts, unless it is another one all the time."""
        if reading.parts is None:
            return None, ()
        factor, parts = _rounded(reading.parts)
        seen = self._factors[place]
        if len(seen) <= _MOST_FACTORS:
            seen.add(factor)
        if len(seen) > _MOST_FACTORS:
            return None, ()
        return factor, parts

    def introduce(self, root: Any, reading: Reading, place: Place | None) -> str:
        """Return the id of a loss, and tell what is known about it."""
        facts = self._recorder.facts
        id_ = self._names.get(place)
        if id_ is None:
            said = spelled(root, self._recorder.book.skip) or "loss"
            id_ = self._names[place] = f"{said}@{place}" if said in facts else said
        before = self._told.get(id_)
        ragged = (before is not None and before[2]) or self.differs(id_, reading.items, place)
        reduction = None if reading.masked and not ragged else reading.reduction
        # Not every reading looks for it: once it was seen, it stays.
        coupled = reading.coupled or (before is not None and before[3])
        told = (reading.kind, reduction, ragged, coupled)
        if told != before:
            self._told[id_] = told
            known: dict[str, Fact] = {"type": reading.kind, "reduction": reduction}
            if coupled:
                known["coupled"] = True
            if ragged:
                known["ragged"] = True
            self._recorder.fact(id_, "loss", place, **known)
        return id_

    def is_ragged(self, id_: str) -> bool:
        """Say whether a loss was found to be a mean of more or fewer items at times."""
        told = self._told.get(id_)
        return told is not None and told[2]

    def certain(self, reading: Reading, id_: str) -> Reading:
        """Return what is certain: a count that is never another one may be that of the window."""
        if reading.masked and not self.is_ragged(id_):
            return reading._replace(parts=None, reduction=None)
        return reading

    def differs(self, id_: str, items: Any, place: Place | None) -> bool:
        """Say whether a loss is a mean of more or fewer items than before in its window."""
        if items is None:
            return False
        firsts = self._items
        if id_ not in firsts:
            firsts[id_] = items
            return False
        # To read a number out of a tensor takes long: it is done for windows of several only.
        one = firsts[id_]
        if one is items:
            return False
        if type(one) is not float:
            one = at_hand(one)
            if one is None:  # it is on a device
                return False
            firsts[id_] = one
        other = at_hand(items)
        if other is None or one == other:
            return False
        if min(one, other) > 0:
            few, many = self._spread.get(id_, (one, one))
            self._spread[id_] = few, many = min(few, one, other), max(many, one, other)
            self._recorder.sampler.gauges.show(
                "items-differ", None, many / few, unit="times", subject=f"{few:g} and {many:g}",
                place=place, model=id_,
            )  # fmt: skip
        return True

    def is_spreading(self, id_: str) -> bool:
        """Say whether a loss was first found to be ragged in the window that is open."""
        return id_ in self._spread

    def window_closed(self) -> None:
        """Forget the items of a window."""
        self._items.clear()
        if self._spread:
            self._spread.clear()


def root_of(tensors: Any) -> Tensor | None:
    """Return the loss of a backward; None if there are several."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if isinstance(tensors, list | tuple) and len(tensors) == 1:
        first = tensors[0]
        return first if isinstance(first, torch.Tensor) else None
    return None


@lru_cache(maxsize=1024)
def _rounded(parts: tuple[float, ...]) -> tuple[float, tuple[float, ...]]:
    """Return the product of multipliers and themselves, in as many digits as are told."""
    return float(f"{math.prod(parts):.7g}"), tuple(float(f"{part:.7g}") for part in parts)
