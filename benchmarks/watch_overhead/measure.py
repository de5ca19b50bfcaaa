"""A job with and without a watcher, in turns in one process."""

import gc
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import torch

import instep
from benchmarks.overhead.measure import Spread
from benchmarks.watch_overhead.jobs import Train


@dataclass(frozen=True)
class Cost:
    """Of one job: what a step takes, and what it takes under watch."""

    plain: Spread
    """Milliseconds of a step."""
    ratio: Spread
    again: Spread
    """The ratio of the same job to itself, not watched."""


def measure(train: Train, *, rounds: int, updates: int, warm_up: int, device: str) -> Cost:
    """Time rounds of `updates`: not watched, not watched again, watched, in changing order.

    A watcher is new in every round; its beginning, in which it looks more closely, is the warm-up.
    """
    clock = _clock(device)
    train(warm_up)
    plains, agains, watched = [], [], []
    for turn in range(rounds):
        turns: list[Callable[[], None]] = [
            lambda: plains.append(_seconds(train, updates, clock)),
            lambda: agains.append(_seconds(train, updates, clock)),
            lambda: watched.append(_under_watch(train, updates, warm_up, clock)),
        ]
        gc.collect()
        gc.disable()
        for at in range(3):
            turns[(turn + at) % 3]()
        gc.enable()
    pairs = list(zip(plains, agains, watched, strict=True))
    return Cost(
        plain=Spread.of([plain * 1e3 for plain in plains]),
        ratio=Spread.of([seen / plain for plain, _, seen in pairs]),
        again=Spread.of([again / plain for plain, again, _ in pairs]),
    )


def memory(train: Train, updates: int) -> float:
    """Return the megabytes of Python objects that a watcher has after so many updates."""
    train(10)
    gc.collect()
    tracemalloc.start()
    with instep.watch():
        train(updates)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / 1e6


def _under_watch(train: Train, updates: int, warm_up: int, clock: Callable[[], float]) -> float:
    with instep.watch():
        train(warm_up)
        return _seconds(train, updates, clock)


def _seconds(train: Train, updates: int, clock: Callable[[], float]) -> float:
    started = clock()
    train(updates)
    return (clock() - started) / updates


def _clock(device: str) -> Callable[[], float]:
    """On the CPU the time of this thread: others may work on the machine as well."""
    if device == "cpu":
        return time.thread_time

    def synchronised() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return synchronised
