"""Epochs that end too early: a loader whose length is known for certain, and that gave less.

A `StopIteration` that escapes from a dataset or a `collate_fn` (`next(...)` without a default) ends
the epoch of a `DataLoader` as if its samples had come to their end, with workers and without; and
so does one out of the function of a `map`.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from instep.engine.around import Rest, inside_of
from instep.engine.dealt import Pass
from instep.errors import WindowError

EXACT = (
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
"""Samplers that give as many as they say. One of a user's may say about how many."""


class Expected:
    """How many batches a loop draws in the epoch that begins; nothing, if that is not certain.

    Of loaders inside of something (`zip`, `tqdm`), as many as the shortest of them has.
    """

    def __init__(self, loader: Any) -> None:
        """Look now: a dataset may grow while it is trained on."""
        found = inside_of(loader) or []
        self._others = [one for one in found if isinstance(one, Rest)]
        self._loaders = [Lasting(one) for one in found if not isinstance(one, Rest)]

    def begin(self) -> None:
        """Note what is known once something was drawn: another pass may begin meanwhile."""
        for loader in self._loaders:
            loader.begin()

    def forget(self) -> None:
        """Expect nothing more: a batch was lost, and who draws knows it."""
        self._loaders = []

    def batches(self) -> int | None:
        """Return the number; None if it is not certain."""
        counts = [loader.batches() for loader in self._loaders]
        certain = [count for count in counts if count is not None]
        return min(certain) if counts and len(certain) == len(counts) else None

    def require(self, came: int) -> None:
        """Raise if fewer batches came."""
        expected = self.batches()
        if expected is None or came >= expected or any(one.has_ended() for one in self._others):
            return
        raise WindowError(
            f"the loader ended after {came} of {expected} batches.",
            why="a StopIteration came out of its dataset or its collate_fn, most likely, which a "
            "DataLoader takes for the end of the epoch: the batches behind it are lost. The open "
            "window was thrown away.",
            fix="look for next(...) without a default there. A loader that is to end earlier gets "
            "fewer samples (Subset), or is inside of itertools.islice(loader, count).",
            more="leaving-early",
        )


class Lasting:
    """How many batches one loader gives, or a pass over it that has begun."""

    def __init__(self, loader: Any) -> None:
        self._samples: int | None = None
        self._dealer: Any = None
        self._batches: BatchSampler | None = None
        self._given = 0
        if isinstance(loader, Pass):
            loader = loader.batches
        if isinstance(loader, DataLoader):
            sampler = _sampler_of(loader)
        else:
            sampler, self._given = _begun_with(loader)
        if type(sampler) is BatchSampler:
            self._batches = sampler
            sampler = sampler.sampler
        self._size, self._drops_last = self._shape()
        if hasattr(sampler, "instep_given"):
            self._dealer = sampler
        elif type(sampler) in EXACT:
            self._samples = len(sampler)

    def _shape(self) -> tuple[int, bool]:
        batches = self._batches
        return (1, False) if batches is None else (batches.batch_size, batches.drop_last)

    def begin(self) -> None:
        """Note what is known once something was drawn."""
        if self._dealer is not None:
            self._samples, self._dealer = self._dealer.instep_given, None

    def batches(self) -> int | None:
        """Return how many are still to come; None if it is not certain."""
        # A program may have its batches grow while it draws them.
        if self._samples is None or self._shape() != (self._size, self._drops_last):
            return None
        whole, rest = divmod(self._samples, self._size)
        return int(whole + (rest > 0 and not self._drops_last)) - self._given


def _sampler_of(loader: DataLoader[Any]) -> Any:
    """Return what a loader draws its batches with, or its samples; None if that is not certain."""
    # A class of a user's may pass over batches in an iterator of its own.
    if isinstance(loader.dataset, IterableDataset):
        return None
    own = [
        name
        for name in ("__iter__", "_get_iterator")
        if getattr(type(loader), name) is not getattr(DataLoader, name)
    ]
    if own and not hasattr(loader, "instep_tells"):
        return None
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def _begun_with(batches: Any) -> tuple[Any, int]:
    """Return the same of the iterator of a loader, and how many it has given; it may differ."""
    # Without a public name in torch: what is not there is not certain.
    if isinstance(getattr(batches, "_dataset", None), IterableDataset):
        return None, 0
    given = getattr(batches, "_num_yielded", None)
    if not isinstance(given, int):
        return None, 0
    return getattr(batches, "_index_sampler", None), given
