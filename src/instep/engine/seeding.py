"""Loaders that are made for one epoch, with a seed of its own, and those that go on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import torch

from instep.engine.dealt import PLACES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Generator, Tensor

_SURE = 2
"""Loops in a row with generators that nobody has met."""
_KEPT = 64
"""Generators that are remembered. They are held: before torch 2.13 there are no weak references to
them, and one that is gone would lend its address to the next."""


class Seeding:
    """Whether each loop is handed a loader with a seed of its own, made for its epoch.

    `DataLoader(..., generator=torch.Generator().manual_seed(epoch))`, made anew for every epoch, is
    to keep its seed where a run goes on; a generator that was there before goes on where it was.
    Two loops in a row whose generators nobody has met tell one from the other: loaders that take
    turns have been met by then.
    """

    def __init__(self, *, are_new: bool = False) -> None:
        self.are_new = are_new
        self._met: deque[Generator] = deque(maxlen=_KEPT)
        self._has_begun = False
        self._strangers = 0  # loops in a row

    def look(self, sources: Mapping[str, Generator], left: Mapping[str, Tensor]) -> None:
        """Look at the generators of a loop that begins, and what the one before has left."""
        is_first, self._has_begun = not self._has_begun, True
        strange = [
            name not in left or not torch.equal(source.get_state(), left[name])
            for name, source in sources.items()
            if not self._has_met(source)
        ]
        self._met.extend(source for source in sources.values() if not self._has_met(source))
        if not sources or is_first:
            return
        self._strangers = self._strangers + 1 if any(strange) else 0
        self.are_new = self._strangers >= _SURE or (self.are_new and bool(self._strangers))

    def _has_met(self, source: Generator) -> bool:
        return any(source is met for met in self._met)


class Anew:
    """Whether each loop is handed a loader that `shard` has made for it of the one that was given.

    Its workers end with it, also those that are to stay: the next one's draw seeds of their own.
    Loaders of one line that are not the same object tell it, from the second loop on.
    """

    def __init__(self, *, is_anew: bool = False) -> None:
        self.is_anew = is_anew
        self._last: dict[int, ReferenceType[Any]] = {}

    def look(self, loader: Any) -> None:
        """Look at the loader of a loop that begins."""
        serial = _serial_of(loader)
        if not serial:
            self.is_anew = False
            return
        before = self._last.pop(serial, None)
        if before is not None:
            self.is_anew = before() is not loader
        self._last = dict([*self._last.items(), (serial, ref(loader))][-_KEPT:])


def _serial_of(loader: Any) -> int:
    """Return the number of a loader that `shard` made, also for one process; 0 for any other."""
    places = (loader, *(getattr(loader, name, None) for name in PLACES))
    found = [place for place in places if hasattr(place, "instep_dealt_to")]
    return int(found[0].serial) if found else 0
