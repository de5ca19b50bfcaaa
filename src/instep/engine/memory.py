"""How much memory pieces use, measured: by the allocator of a GPU, or by counting bytes."""

from __future__ import annotations

import math
import re
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_TRIED = re.compile(r"[Tt]ried to allocate ([\d.]+) (bytes|KiB|MiB|GiB|TiB)")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocator of torch said that there is no more memory.

    On the host it has no type of its own. Python's MemoryError and texts of others that speak of
    memory are not taken for it: a smaller piece would not help them.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)


def reason_of(error: BaseException | None) -> str:
    """Return why a window that ended with this error was given up, in the words of the trace."""
    return "out-of-memory" if error is not None and is_out_of_memory(error) else "exception"


def readable(amount: float) -> str:
    """Write bytes for people.

    >>> readable(1536), readable(3 * 2**30)
    ('1.5 KiB', '3.0 GiB')
    """
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024 * _UNITS[unit]:
            return f"{amount / _UNITS[unit]:.{0 if unit == 'bytes' else 1}f} {unit}"
    return f"{amount / 2**30:.1f} GiB"


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Return the memory of these tensors, each storage once."""
    storages = {}
    for tensor in tensors:
        for storage in _storages(tensor):
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _storages(tensor: Any) -> list[torch.UntypedStorage]:
    if tensor.is_nested and tensor.layout == torch.jagged:
        return [tensor.values().untyped_storage()]
    if is_traceable_wrapper_subclass(tensor):
        # A DTensor has no memory of its own, and holds the part of it that is here.
        names, _ = tensor.__tensor_flatten__()
        inner = (getattr(tensor, name) for name in names)
        return [s for each in inner if isinstance(each, Tensor) for s in _storages(each)]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices().untyped_storage(), tensor._values().untyped_storage()]  # noqa: SLF001
    return [tensor.untyped_storage()] if tensor.layout == torch.strided else []


class Meter(Protocol):
    """What can be asked about memory while pieces run."""

    can_measure: bool
    limit: float
    """Bytes there are, everything that is held already included."""

    def watching(self) -> AbstractContextManager[object]:
        """Return what is entered around the pieces of a window."""

    def held(self) -> float:
        """Return the bytes in use now."""

    def restart(self) -> None:
        """Forget the peak."""

    def peak(self) -> float:
        """Return the most bytes that were in use since then."""

    def needed(self, error: BaseException) -> float | None:
        """Return how much would have been needed where an allocation failed, if that is known."""


class NoMeter:
    """Memory that nobody can measure: the only limit is an allocation that fails."""

    can_measure = False
    limit = math.inf

    def watching(self) -> AbstractContextManager[object]:
        """Watch nothing."""
        return nullcontext()

    def held(self) -> float:
        """Return nothing."""
        return 0.0

    def restart(self) -> None:
        """Forget nothing."""

    def peak(self) -> float:
        """Return nothing."""
        return 0.0

    def needed(self, error: BaseException) -> float | None:
        """Return what the allocator says it was asked for."""
        found = re.search(r"allocate (\d+) bytes", str(error))
        return float(found[1]) if found else None


class CudaMeter:
    """The statistics of CUDA's caching allocator; measuring resets its peaks."""

    can_measure = True

    def __init__(self, device: torch.device, budget: float | None) -> None:
        self._device = device
        # Reading the limit is a call of the driver: once per window, and it does not wait for
        # kernels.
        free, total = torch.cuda.mem_get_info(device)
        ours = free + torch.cuda.memory_reserved(device)
        share = torch.cuda.get_per_process_memory_fraction(device) * total
        self.limit = float(min(ours, share, math.inf if budget is None else budget))

    def watching(self) -> AbstractContextManager[object]:
        """Watch nothing: the allocator counts by itself."""
        return nullcontext()

    def held(self) -> float:
        """Return the bytes of all tensors on the device."""
        return float(torch.cuda.memory_allocated(self._device))

    def restart(self) -> None:
        """Forget the peak."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak(self) -> float:
        """Return the most bytes of tensors since then."""
        return float(torch.cuda.max_memory_allocated(self._device))

    def needed(self, error: BaseException) -> float | None:
        """Return what was held when an allocation failed, and what was asked for."""
        found = _TRIED.search(str(error))
        asked = float(found[1]) * _UNITS[found[2]] if found else 0.0
        # Not the peak: it may be that of anything before. The error still holds what the failed
        # piece had made.
        return self.held() + asked


class OverBudgetError(torch.OutOfMemoryError):
    """An allocation that a byte budget does not allow; `needed` is what it would have taken."""

    def __init__(self, needed: float, budget: float) -> None:
        super().__init__(f"over the budget: {readable(needed)} are needed of {readable(budget)}")
        self.needed = needed


class Budget(TorchDispatchMode):
    """Counts the bytes of every tensor made while it is entered, and refuses those over a budget.

    Storages are counted once, and no more when they are gone. What an operation uses inside itself
    is not seen.
    """

    can_measure = True

    def __init__(self, budget: float, held: float) -> None:
        super().__init__()
        self.limit = float(budget)
        self._live = self._peak = held
        self._seen: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def ignore(self, tensors: Iterable[Tensor]) -> None:
        """Take note of tensors that `held` counts already."""
        for tensor in tensors:
            for storage in _storages(tensor):
                self._note(storage, 0)

    def include(self, tensors: Iterable[Tensor]) -> None:
        """Count tensors that were made since `held` was, and are there while this is entered."""
        for tensor in tensors:
            for storage in _storages(tensor):
                self._note(storage, storage.nbytes())

    def watching(self) -> AbstractContextManager[object]:
        """Count while this is entered."""
        return self

    def held(self) -> float:
        """Return the bytes in use now."""
        return self._live

    def restart(self) -> None:
        """Forget the peak."""
        self._peak = self._live

    def peak(self) -> float:
        """Return the most bytes that were in use since then."""
        return self._peak

    def needed(self, error: BaseException) -> float | None:
        """Return what would have been in use."""
        return error.needed if isinstance(error, OverBudgetError) else None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and count what it made."""
        result = func(*args, **(kwargs or {}))
        self._count(result)
        if self._live > self.limit:
            # What was refused must not live on in the traceback.
            needed, result = self._live, None
            raise OverBudgetError(needed, self.limit)
        return result

    def _count(self, result: Any) -> None:
        made = result if isinstance(result, list | tuple) else (result,)
        self.include(tensor for tensor in made if isinstance(tensor, Tensor))

    def _note(self, storage: torch.UntypedStorage, size: int) -> None:
        # The address of the storage object itself: wrappers of it come and go.
        key = storage._cdata  # noqa: SLF001
        known = self._seen.get(key)
        if known is not None and known() is not None:
            return

        def forget(_: object) -> None:
            self._seen.pop(key, None)
            self._live -= size

        self._seen[key] = weakref.ref(storage, forget)
        self._live += size
        self._peak = max(self._peak, self._live)
