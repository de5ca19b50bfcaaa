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
        self._loader = loader
        self._samples: int | None = None
        self._dealer: Any = None
        self._size, self._drops_last = 1, False
        if not _is_plain(loader):
            return
        batches = loader.batch_sampler
        sampler = loader.sampler
        if batches is not None and type(batches) is not BatchSampler:
            sampler = batches
        elif batches is not None:
            sampler = batches.sampler
            self._size, self._drops_last = batches.batch_size, batches.drop_last
        if hasattr(sampler, "instep_given"):
            self._dealer = sampler
        elif type(sampler) in EXACT:
            self._samples = len(sampler)

    def batches(self) -> int | None:
        """Return the number, once the epoch is over."""
        samples = self._samples if self._dealer is None else self._dealer.instep_given
        if samples is None:
            return None
        return int(samples // self._size if self._drops_last else -(-samples // self._size))

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
    # A class of a user's may pass over batches in an __iter__ of its own.
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    return type(loader).__iter__ is DataLoader.__iter__ or hasattr(loader, "instep_tells")
