"""Orders in which samples are dealt out: one sequence for each loader, and a number of each order.

`shard(loader)` may be called once, or anew in every epoch: the orders go on all the same, so that
what they are drawn from stays with the loader that was given, as long as that is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import sys
import zlib
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import torch

from instep.engine import rng
from instep.engine.dealt import line_of_here, serial_of
from instep.engine.passed import numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEPT = 64
"""Sequences of one loader that are remembered, the last ones: each epoch may have its own seed."""
SOME = 4096
"""Things that are no numbers of samples, of which so many are looked at."""


@dataclass(frozen=True, eq=False, slots=True)
class Orders:
    """A sequence of orders, of which each pass over a loader has the next one."""

    seed: int
    generator: torch.Generator
    """What they are drawn from."""
    follows: bool
    """Whether that is the loader's own, which decides as it would without us."""
    serial: int
    """A number of the line that asked for it, the same on all ranks."""


class _Kept:
    """The sequences of loaders that are there, by identity: a loader may have no hash."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[ReferenceType[Any], dict[Any, Orders]]] = {}

    def of(self, loader: object) -> dict[Any, Orders]:
        """Return those of a loader, to be read and added to."""
        key = id(loader)
        if key not in self._of:
            self._of[key] = ref(loader, lambda _: self._of.pop(key, None)), {}
        return self._of[key][1]


_kept = _Kept()


def orders_of(loader: object, sampler: object, seed: int | None, turn: tuple[int, int]) -> Orders:
    """Return the sequence of orders of a loader, that goes on wherever it was.

    One for each line of the program that asks, and for each part of the samples. Of a loader that
    has no generator of its own those of other lines have other orders: a loop in another line does
    not begin with the orders of the first, and who looks into the loader somewhere else moves none.
    """
    line = line_of_here()
    own = generator_of(sampler) if seed is None else None
    kept = _kept.of(loader)
    about = ("own" if own is not None else (seed or 0), turn)
    known = kept.pop((*about, line), None)
    if known is None or (own is not None and known.generator is not own):
        # What the first line has does not depend on how many come after it.
        earlier = sum(key[:-1] == about for key in kept)
        first = own.initial_seed() if own is not None else (seed or 0)
        begins = mixed("line", first, earlier) if earlier else first
        known = Orders(
            first,
            own or torch.Generator().manual_seed(begins),
            own is not None,
            serial_of(line),
        )
    kept[(*about, line)] = known
    if len(kept) > KEPT:
        del kept[next(iter(kept))]
    return known


def generator_of(sampler: object) -> torch.Generator | None:
    """Return the generator that a sampler was given, or the one that it makes batches of."""
    for place in (sampler, getattr(sampler, "sampler", None)):
        generator = getattr(place, "generator", None)
        if isinstance(generator, torch.Generator):
            return generator
    return None


def mixed(*parts: object) -> int:
    """Return a seed of these: neighbours have nothing in common."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "little")


@contextlib.contextmanager
def drawing_from(seed: int, sampler: object, but: torch.Generator | None = None) -> Iterator[None]:
    """Let a sampler draw the same numbers on every rank; all generators are as before then.

    but: one that is the same everywhere by itself, and goes on.
    """
    before = rng.full_state()
    places = (sampler, getattr(sampler, "sampler", None))
    found = [getattr(place, "generator", None) for place in places]
    generators = [g for g in found if isinstance(g, torch.Generator) and g is not but]
    own = [(g, g.get_state()) for g in generators]
    try:
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed % 2**32)
        for generator, _ in own:
            generator.manual_seed(seed)
        yield
    finally:
        rng.restore(before)
        for generator, state in own:
            generator.set_state(state)


def number_of(items: Sequence[Any], begins_at: int = 0) -> int:
    """Return a number of what is dealt out in an epoch: other samples or batches have another one.

    About 30 ms for a million of samples; nothing for those of a range.

    >>> number_of([2, 0, 1]) == number_of([0, 1, 2])
    False
    >>> number_of([[0, 1], [2]]) == number_of([[0], [1, 2]])
    False
    """
    number = zlib.crc32(f"{len(items)} {begins_at}".encode())
    if isinstance(items, range):
        return zlib.crc32(repr(items).encode(), number) or 1
    for part in _as_numbers(items):
        number = zlib.crc32(part, number)
    return number or 1


def _as_numbers(items: Sequence[Any]) -> list[array[int]]:
    # Numbers on a device would have to be fetched, one by one.
    if not items or getattr(getattr(items[0], "device", None), "type", "cpu") == "cpu":
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return [array("q", items)]
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            flat = itertools.chain.from_iterable(map(_listed, items))
            return [array("q", map(len, items)), array("q", flat)]
    some = items[:: len(items) // SOME + 1]
    # Numbers and texts alone where there are any: what is drawn besides may be each rank's own.
    seen = [numbers_of(item) for item in some]
    return [array("q", (each.names or each.looks for each in seen))]


def _listed(batch: Any) -> Any:
    return batch.tolist() if hasattr(batch, "tolist") else batch
