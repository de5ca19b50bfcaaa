"""Processes that stay for many cases: starting torch takes longer than most of what they do."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing

PATIENCE = 60.0
"""Seconds after which a case has hung, and everybody is ended."""


class RankError(AssertionError):
    """A case raised on some ranks; `errors` has the text of each, None where it did not."""

    def __init__(self, errors: list[str | None]) -> None:
        super().__init__("\n".join(f"rank {r}: {e}" for r, e in enumerate(errors) if e))
        self.errors = errors


class Crew:
    """So many processes, each a rank of a process group that every case gets anew."""

    backend = "gloo"
    patience: float | None = None
    """Seconds after which a case has hung here, if they are not those of all crews."""
    prepare: Callable[[int], None] | None = None
    """What each process does before its first group, told its rank."""
    finish: Callable[[], bool] | None = None
    """What it does with the group after each case, if not destroy it; False if it has to end."""

    def __init__(self, world: int) -> None:
        self.world = world
        self._started: list[tuple[Any, Any]] = []

    def _start(self) -> None:
        context = forking()
        for rank in range(self.world):
            here, there = context.Pipe()
            args = (rank, self.world, there, type(self).prepare, type(self).finish)
            process = context.Process(target=_work, args=args, daemon=True)
            process.start()
            there.close()
            self._started.append((process, here))

    def run(self, case: Callable[..., Any], *args: Any, timeout: float = 40.0) -> list[Any]:
        """Return what the case returns on each rank; `timeout` is that of its collectives."""
        if not self._started:
            self._start()
        store = tempfile.mktemp(prefix="instep-store-")  # noqa: S306 -- torch makes the file
        for _, pipe in self._started:
            pipe.send((case, args, store, timeout, self.backend))
        until = time.monotonic() + (self.patience or PATIENCE)
        answers: list[Any] = []
        for rank, (_, pipe) in enumerate(self._started):
            ended = "" if pipe.poll(max(until - time.monotonic(), 0.0)) else "hung"
            try:
                answers.append(None if ended else pipe.recv())
            except (EOFError, OSError):
                ended = "died"
            if ended:
                self.end()
                raise AssertionError(f"rank {rank} {ended} in {case.__name__}{args}")
        Path(store).unlink(missing_ok=True)
        if not all(stays for *_, stays in answers):
            self.end()
        errors = [answer if failed else None for failed, answer, _ in answers]
        if any(errors):
            raise RankError(errors)
        return [answer for _, answer, _ in answers]

    def end(self) -> None:
        """End every process that was started here."""
        for process, pipe in self._started:
            pipe.close()
            process.kill()
            process.join()
        self._started = []


def forking() -> Any:
    """What starts processes: one of them imports torch, and those that work are copies of it."""
    context = multiprocessing.get_context("forkserver")
    # Optimizers and DDP import the first one when they are first used.
    heavy = ["torch._dynamo", "torch.distributed.fsdp", "instep.engine.stepper"]
    context.set_forkserver_preload([*heavy, "tests.distributed.kit"])
    return context


def run_once(world: int, function: Callable[..., Any], *args: Any) -> None:
    """Run a function, told its rank first, in so many processes; raise what one of them raises."""
    forking()
    multiprocessing.start_processes(function, args, nprocs=world, start_method="forkserver")


def _work(
    rank: int,
    world: int,
    pipe: Any,
    prepare: Callable[[int], None] | None,
    finish: Callable[[], bool] | None,
) -> None:
    torch.set_num_threads(1)
    if prepare is not None:
        prepare(rank)
    # What is imported stays: looking through it again after every case takes longer than the case.
    gc.freeze()
    while True:
        try:
            case, args, store, timeout, backend = pipe.recv()
        except EOFError:
            return
        stays = [True]
        try:
            with group(rank, world, store, timeout, backend, finish, stays):
                answer = (False, case(rank, world, *args))
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the parent wants to know
            answer = (True, text_of(error))
        pipe.send((*answer, *stays))


def text_of(error: BaseException) -> str:
    """Write an error down: of instep's own what they say, of others where they come from, too."""
    told = getattr(error, "what", None)
    return str(error) if told else "".join(traceback.format_exception(error))


@contextmanager
def group(
    rank: int,
    world: int,
    store: str,
    timeout: float,
    backend: str = "gloo",
    finish: Callable[[], bool] | None = None,
    stays: list[bool] | None = None,
) -> Iterator[None]:
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    limit = timedelta(seconds=timeout)
    meeting = distributed.FileStore(store, world)
    distributed.init_process_group(
        backend, store=meeting, rank=rank, world_size=world, timeout=limit
    )
    # A rank that is done at once must not close what another one is about to connect to.
    meeting.set(f"connected/{rank}", "")
    meeting.wait([f"connected/{other}" for other in range(world)], limit)
    try:
        yield
    finally:
        # A DDP model that outlives its group never ends.
        gc.collect()
        if finish is None:
            distributed.destroy_process_group()
        elif stays is not None:
            stays[:] = [finish()]
