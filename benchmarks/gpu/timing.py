"""Times on the device, and how much memory was in use at most."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


AHEAD = 2 * 10**7
"""Cycles that the device is kept busy with before a run that the host shall be ahead of."""


def keep_busy() -> None:
    """Give the device something to do, as it has in training when a window closes."""
    torch.cuda._sleep(AHEAD)


def milliseconds(
    run: Callable[[], object], *, repeats: int = 7, warm_up: int = 3, is_ahead: bool = False
) -> float:
    """Return the median time of a run on the device: idle before it, or with the host ahead."""
    for _ in range(warm_up):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if is_ahead:
            keep_busy()
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return float(statistics.median(times))


def host_microseconds(run: Callable[[], object], *, repeats: int = 50) -> float:
    """Return the median time that the host is busy with a run, the device being idle before."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - begin) / 1000)
    torch.cuda.synchronize()
    return statistics.median(times)


def copy_bandwidth() -> float:
    """Return bytes per millisecond of a plain copy: what memory can do."""
    one = torch.empty(1 << 29, dtype=torch.float32, device="cuda")
    other = torch.empty_like(one)
    return 2 * one.nbytes / milliseconds(lambda: other.copy_(one))


def peak_gibibytes() -> float:
    """Return the largest amount of memory in use since the last reset."""
    return torch.cuda.max_memory_allocated() / 2**30
