"""Epochs that end too early: a loader whose length is known for certain, and that gave less.

A `StopIteration` that escapes from a dataset or a `collate_fn` (`next(...)` without a default) ends
the epoch of a `DataLoader` as if its samples had come to their end, with workers and without.
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
    """How many batches a loader gives in the epoch that begins; nothing, if that is not certain."""

    def __init__(self, loader: Any) -> None:
        """Look now: a dataset may grow while it is trained on."""
        self._samples: int | None = None
        self._dealer: Any = None
        self._batches: BatchSampler | None = None
        if not _is_plain(loader):
            return
        sampler = loader.sampler
        if type(loader.batch_sampler) is BatchSampler:
            self._batches = loader.batch_sampler
            sampler = self._batches.sampler
        elif loader.batch_sampler is not None:
            sampler = loader.batch_sampler
        self._size, self._drops_last = self._shape()
        if hasattr(sampler, "instep_given"):
            self._dealer = sampler
        elif type(sampler) in EXACT:
            self._samples = len(sampler)

    def _shape(self) -> tuple[int, bool]:
        batches = self._batches
        return (1, False) if batches is None else (batches.batch_size, batches.drop_last)

    def begin(self) -> None:
        """Note what is known once something was drawn: another pass may begin meanwhile."""
        if self._dealer is not None:
            self._samples, self._dealer = self._dealer.instep_given, None

    def forget(self) -> None:
        """Expect nothing more: a batch was lost, and who draws knows it."""
        self._samples = self._dealer = None

    def batches(self) -> int | None:
        """Return the number; None if it is not certain."""
        # A program may have its batches grow while it draws them.
        if self._samples is None or self._shape() != (self._size, self._drops_last):
            return None
        whole, rest = divmod(self._samples, self._size)
        return int(whole + (rest > 0 and not self._drops_last))

    def require(self, came: int) -> None:
        """Raise if fewer batches came."""
        expected = self.batches()
        if expected is None or came >= expected:
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


def _is_plain(loader: Any) -> bool:
    # A class of a user's may pass over batches in an iterator of its own.
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    own = [
        name
        for name in ("__iter__", "_get_iterator")
        if getattr(type(loader), name) is not getattr(DataLoader, name)
    ]
    return not own or hasattr(loader, "instep_tells")
