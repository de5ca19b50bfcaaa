"""How much memory an update takes on the CPU: the bytes of all tensors that are alive at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Meter(TorchDispatchMode):
    """Count the storages that operations make while it is entered, until they are freed.

    Exact and the same in every run, unlike the memory of the process. What a kernel allocates for
    itself and frees before it returns is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive = 0
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count what it made."""
        given = {_key(value) for value in _tensors((args, kwargs))}
        made = func(*args, **(kwargs or {}))
        for tensor in _tensors(made):
            if _key(tensor) not in self._known and _key(tensor) not in given:
                self._count(_key(tensor), tensor.untyped_storage())
        return made

    def _count(self, key: int, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()

        def freed(_: object) -> None:
            del self._known[key]
            self._alive -= size

        self._known[key] = weakref.ref(storage, freed)
        self._alive += size
        self.peak = max(self.peak, self._alive)


def peak_bytes(update: Callable[[], object]) -> int:
    """Return the most bytes that an update had alive at once, beyond what there was before."""
    meter = Meter()
    with meter:
        update()
    return meter.peak


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _key(tensor: torch.Tensor) -> int:
    # The address of the storage itself: that of its first byte is 0 for all that are empty.
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 -- no public name
