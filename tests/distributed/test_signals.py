"""A rank that is told to end, and does: the others say which one, and do not wait for it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
from torch import distributed

import instep
from instep.checkpoint import folders, shards
from instep.engine.ranks import rollcall
from tests.distributed.crew import forking
from tests.distributed.kit import dealt, spread
from tests.engine.kit import mean_loss, mlp

TIMEOUT = 50.0
"""Of the process group: who waits for it has hung."""


def told_to_end(number, frame):
    sys.exit(3)


def told_to_end_now(number, frame):
    os._exit(3)


def interrupted(save: Any, *args: Any, **options: Any) -> Any:
    """It comes where all ranks write their parts of the tensors, and wait for each other."""
    os.kill(os.getpid(), signal.SIGTERM)
    return save(*args, **options)


SAVED = ("autosave", "autosave, and a handler behind it", "inside of a save")


def train(rank: int, victim: int, how: Any, where: str, path: str) -> None:
    model = spread(mlp(), "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = dealt([[3, 4, 1, 2, 5, 1]] * 3)[rank]
    is_saved = where in SAVED
    every = 2 if where == "inside of a save" else 100
    with stepper.autosave(path, every=every) if is_saved else contextlib.nullcontext():
        if where in SAVED[1:]:
            signal.signal(signal.SIGTERM, how)
        if where == "inside of a save" and rank == victim:
            shards.save = partial(interrupted, shards.save)
        for _ in range(3):
            for window in stepper.windows(data, size=2):
                for x, y in window:
                    if window.index == 1 and rank == victim:
                        if where == "close":
                            # It comes while this rank waits for the others.
                            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
                        elif where != "inside of a save":
                            os.kill(os.getpid(), signal.SIGTERM)
                    if window.index == 1 and rank != victim and where == "close":
                        time.sleep(0.7)
                    window.backward(mean_loss(model, x, y), items=len(y))


def work(rank: int, world: int, store: str, case: tuple, path: str, pipe: Any) -> None:
    victim, how, where = case
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, how)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    options = {"init_method": store, "rank": rank, "world_size": world}
    distributed.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT), **options)
    start = time.monotonic()
    try:
        train(rank, victim, how, where, path)
    except instep.errors.WindowError as error:
        pipe.send((error.what, error.why, time.monotonic() - start))
        os._exit(1)  # a group that is broken may keep its process


def end_one(world: int, store: str, case: tuple, path: str) -> list[Any]:
    """Run all ranks; return what each has said, or how it ended."""
    context = forking()
    started = []
    for rank in range(world):
        here, there = context.Pipe()
        process = context.Process(target=work, args=(rank, world, store, case, path, there))
        process.start()
        there.close()
        started.append((process, here))
    found = []
    until = time.monotonic() + TIMEOUT
    for process, pipe in started:
        process.join(max(until - time.monotonic(), 0.0))
        if process.exitcode is None:
            process.kill()
            process.join()
            found.append("hung")
            continue
        try:
            found.append(pipe.recv())
        except EOFError:
            found.append(process.exitcode)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


CASES = {
    "in a window": (1, told_to_end, "body", "rank 1"),
    "at once": (1, told_to_end_now, "body", "rank 1 is gone, before the close"),
    "while it waits": (1, told_to_end, "close", "rank 1"),
    "after it was saved": (1, told_to_end, "autosave", "rank 1"),
    "by a handler that was set later": (1, told_to_end, SAVED[1], "rank 1 gave up"),
    "inside of a save": (1, told_to_end, SAVED[2], "rank 1 gave up, so the checkpoint"),
    "inside of a save, who begins it": (0, told_to_end, SAVED[2], "rank 0 gave up, so the check"),
    "with the store": (0, told_to_end_now, "body", "rank 0 is gone, before the close"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_others_say_who_ended(tmp_path, name):
    victim, how, where, words = CASES[name]
    store = f"file://{tmp_path}/store"
    if name == "with the store":
        store = f"tcp://127.0.0.1:{free_port()}"
    found = end_one(3, store, (victim, how, where), str(tmp_path / "run"))
    assert found[victim] == 3
    for rank in {0, 1, 2} - {victim}:
        what, why, seconds = found[rank]
        assert what.startswith(words), (rank, what, why)
        assert what.startswith((f"rank {victim} gave up", f"rank {victim} is gone"))
        # To find out that a store is gone takes a few seconds more.
        assert seconds < (TIMEOUT / 2 if name == "with the store" else rollcall.ROLL_CALL)
    if where in SAVED:
        # The first one is made at once; whatever comes behind it is finished or not there.
        count = 2 if where == "autosave" else 1
        assert len(folders.finished(tmp_path / "run")) == count
