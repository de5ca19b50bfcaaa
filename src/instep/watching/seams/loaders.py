"""Loaders: batches that are drawn, and epochs that end."""

from __future__ import annotations

import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from instep.watching.seam import Seam

_INNER = (str(Path(torch.__file__).parent) + "/", __file__[: -len("seams/loaders.py")])


def install(seam: Seam) -> None:
    """Watch the iterators of `DataLoader`."""
    owners: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def begin(original: Callable[..., Any], self: Any) -> Any:
        iterator = original(self)
        with seam.safely():
            # An iterator that is kept by its loader must not keep the loader in turn; another one
            # has to: of a loader that is made in the head of a `for`, nobody else has hold.
            is_kept = getattr(self, "_iterator", None) is not None
            owners[iterator] = weakref.ref(self) if is_kept else lambda: self
        return iterator

    def draw(original: Callable[..., Any], self: Any) -> Any:
        loader = owners.get(self)
        source = None if loader is None else loader()
        try:
            batch = original(self)
        except StopIteration:
            if source is not None:
                with seam.safely():
                    seam.recorder.feeds.ended(source, _asking())
            raise
        if source is not None:
            with seam.safely():
                seam.recorder.feeds.drawn(source, batch)
        return batch

    seam.patches.replace(DataLoader, "__iter__", begin)
    seam.patches.replace(_BaseDataLoaderIter, "__next__", draw)


def _asking() -> FrameType | None:
    """Return the frame that asked for a batch: the first that is neither ours nor torch's."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # `inspect` would read source files
    while frame is not None and frame.f_code.co_filename.startswith(_INNER):
        frame = frame.f_back
    return frame
