"""Files in parallel: a pool of processes where there is enough to do, none where there is not."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from instep.errors import CheckError
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.context import BaseContext

    from instep.check.outcome import Outcome

    Work = Callable[["Task"], Outcome]

_WORTH_A_POOL = 100_000  # bytes of source; fewer are judged before the processes have started
# Syntax trees are very many objects and no garbage: looking for some after every few hundred of
# them, as Python does, takes a third of the time of a large run, and so it does after every few
# hundred thousand. A file leaves its garbage when it is done; it is looked for then, among what the
# file has made and nothing else, while it is still near the processor. In the middle of a file only
# one that makes millions is stopped. A small run ends before it has left 20 MB, and looks for none.
_COLLECTIONS = (2_000_000, 20, 100)
_OF_A_FILE = 0
_MUCH = 200_000  # objects


@dataclass(frozen=True, slots=True)
class Task:
    """A file that has to be checked."""

    path: str
    size: int
    named: bool


class _Sweep:
    """Drops what files leave behind, one after another, once that has become much."""

    def __init__(self) -> None:
        self._is_worth_it = False

    def after(self, outcome: Outcome) -> Outcome:
        """Do so after a file, and return what came of that."""
        self._is_worth_it = self._is_worth_it or gc.get_count()[_OF_A_FILE] > _MUCH
        if self._is_worth_it:
            gc.collect(_OF_A_FILE)
        return outcome


def cores() -> int:
    """Return how many processes can run at once."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run, but less often. Where it does not run otherwise, it does not
    run at the end, either: what is left goes with the process.
    """
    usual, is_on = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(*_COLLECTIONS)
    gc.enable()
    try:
        yield
    finally:
        if not is_on:
            gc.disable()
        gc.set_threshold(*usual)


def spread(
    tasks: Sequence[Task], make: Callable[[], Work], *, jobs: int
) -> Iterator[tuple[Task, Outcome]]:
    """Yield every task's outcome as soon as it is there. `make` returns what does the work; each
    process calls it once, so it has to be picklable where processes cannot be forked.
    """
    jobs = min(jobs, len(tasks))
    if jobs < 2 or sum(task.size for task in tasks) < _WORTH_A_POOL:
        work = make()
        sweep = _Sweep()
        for task in tasks:
            yield task, sweep.after(work(task))
        return
    yield from _pooled(tasks, make, jobs)


def _pooled(
    tasks: Sequence[Task], make: Callable[[], Work], jobs: int
) -> Iterator[tuple[Task, Outcome]]:
    from concurrent.futures import ProcessPoolExecutor, as_completed  # noqa: PLC0415  # slow to load
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415

    # The largest first, so that none of them is left when all others are done.
    ordered = sorted(tasks, key=lambda task: -task.size)
    with ProcessPoolExecutor(jobs, _context(), _begin, (make,)) as pool:
        futures = {pool.submit(_work, task): task for task in ordered}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise CheckError(
                "a process that checks files died.",
                why="it ran out of memory, or somebody ended it.",
                fix="run again with --jobs 1, which needs the least memory.",
                more="checking",
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _context() -> BaseContext:
    import multiprocessing  # noqa: PLC0415  # slow to load
    import threading  # noqa: PLC0415

    # Forking is ten times faster than starting afresh, and only safe while there is one thread.
    methods = multiprocessing.get_all_start_methods()
    forks = "fork" in methods and sys.platform != "darwin" and threading.active_count() == 1
    return multiprocessing.get_context("fork" if forks else "spawn")


_worker: list[tuple[Work, _Sweep]] = []


def _begin(make: Callable[[], Work]) -> None:
    import signal  # noqa: PLC0415  # slow to load

    # Ctrl-C goes to every process of the terminal; the first one tells the others to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(*_COLLECTIONS)
    _worker[:] = [(make(), _Sweep())]


def _work(task: Task) -> Outcome:
    work, sweep = _worker[0]
    return sweep.after(work(task))
