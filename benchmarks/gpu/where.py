"""Where the time of a window goes: the device's kernels by what they are for."""

from __future__ import annotations

import collections
import re
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KINDS = {
    "matrix products": r"nvjet|gemm|cutlass|splitKreduce",
    "attention": r"sdpa|flash|fmha|cudnn::fusion",
    "norm and update of the close": r"^(update|squares)$",
    "copies, rows that wait for a shared product among them": r"[Mm]emcpy|[Mm]emset",
}
OTHERS = "the model's other kernels, and the loss"
BETWEEN = "between kernels"


class Kernel(NamedTuple):
    """One run of one kernel, in microseconds since some beginning."""

    name: str
    start: float
    end: float


def kernels_of(run: Callable[[], object]) -> list[Kernel]:
    """Return what the device did in a run."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    return [
        Kernel(event.name, event.time_range.start, event.time_range.end)
        for event in seen.events() or []
        if event.device_type.name == "CUDA"
    ]


def by_kind(kernels: Iterable[Kernel]) -> dict[str, float]:
    """Return the milliseconds of each kind; kernels that overlap are counted one by one.

    >>> found = by_kind([Kernel("nvjet_x", 0, 3000), Kernel("update", 4000, 5000)])
    >>> {kind: took for kind, took in found.items() if took}  # doctest: +NORMALIZE_WHITESPACE
    {'matrix products': 3.0, 'norm and update of the close': 1.0, 'between kernels': 1.0}
    """
    kernels = sorted(kernels, key=lambda one: one.start)
    sums: collections.Counter[str] = collections.Counter()
    idle, until = 0.0, kernels[0].start
    for name, start, end in kernels:
        kind = next((kind for kind, words in KINDS.items() if re.search(words, name)), OTHERS)
        sums[kind] += end - start  # type: ignore[assignment]  # a Counter of microseconds
        idle += max(start - until, 0.0)
        until = max(until, end)
    made = {kind: sums[kind] / 1000 for kind in (*KINDS, OTHERS)}
    return {**made, BETWEEN: idle / 1000}
