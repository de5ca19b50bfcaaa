"""Loaders: batches that are drawn, and epochs that end."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.watching.seam import Seam


def install(seam: Seam) -> None:
    """Watch the iterators of `DataLoader`."""
    owners: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def begin(original: Callable[..., Any], self: Any) -> Any:
        iterator = original(self)
        with seam.safely():
            owners[iterator] = weakref.ref(self)
        return iterator

    def draw(original: Callable[..., Any], self: Any) -> Any:
        loader = owners.get(self)
        source = None if loader is None else loader()
        try:
            batch = original(self)
        except StopIteration:
            if source is not None:
                with seam.safely():
                    seam.recorder.epoch_ended(source)
            raise
        if source is not None:
            with seam.safely():
                seam.recorder.drawn(source)
        return batch

    seam.patches.replace(DataLoader, "__iter__", begin)
    seam.patches.replace(_BaseDataLoaderIter, "__next__", draw)
