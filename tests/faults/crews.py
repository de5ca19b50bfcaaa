"""Jobs of several ranks, of which one is killed or hangs; then all of them start again."""

from __future__ import annotations

import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tests.faults import job
from tests.faults.harness import (
    Toll,
    context,
    differences,
    lost_or_doubled,
    path_of_this_project,
)
from tests.faults.plan import Plan, drawn

WORLD = 2
PATIENCE = 120.0


def start(folder: Path, plan: str, victim: int, *, timeout: float = 30.0) -> list[int]:
    """Run all ranks to their ends; return how each ended. A rank that hangs is ended last."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("error-*.txt"):
        old.unlink()
    store = tempfile.mktemp(prefix="instep-store-")  # noqa: S306 -- torch makes the file
    with path_of_this_project():
        processes = [
            context().Process(
                target=job.rank_work,
                args=(rank, WORLD, str(folder), store, plan, victim, timeout),
            )
            for rank in range(WORLD)
        ]
        for process in processes:
            process.start()
    until = time.monotonic() + PATIENCE
    for rank, process in enumerate(processes):
        if rank != victim or not plan.startswith("hang"):
            process.join(max(0.0, until - time.monotonic()))
    hung = [process for process in processes if process.exitcode is None]
    for process in hung:
        process.kill()
        process.join()
    Path(store).unlink(missing_ok=True)
    expected = int(plan.startswith("hang"))
    assert len(hung) <= expected, f"{plan} on rank {victim}: {len(hung)} ranks never ended"
    return [int(process.exitcode or 0) for process in processes]


def results_of(folder: Path) -> list[dict[str, Any]]:
    """Return what every rank has found in the end."""
    paths = [folder / f"result-{rank}.pt" for rank in range(WORLD)]
    return [torch.load(path, weights_only=True) for path in paths]


def whole_run(folder: Path) -> list[dict[str, Any]]:
    """Run a job that nobody stops."""
    assert start(folder, "", -1) == [0] * WORLD
    return results_of(folder)


def compared(found: list[dict[str, Any]], whole: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Compare every rank bit for bit; return what differs, and how many lines were lost."""
    different = [
        f"rank {rank}: {each}"
        for rank in range(WORLD)
        for each in differences(found[rank], whole[rank])
    ]
    return different, lost_or_doubled([line for each in found for line in each["seen"]])


def kill_one(folder: Path, plan: Plan, victim: int) -> bool:
    """Kill one rank there; the others end, with an error that names it. Return whether it was."""
    codes = start(folder, str(plan), victim)
    if codes == [0] * WORLD:
        return False
    assert codes[victim] == -signal.SIGKILL, (plan, codes)
    for rank in range(WORLD):
        if rank != victim:
            assert codes[rank] == 1, (plan, codes)
            assert (folder / f"error-{rank}.txt").exists()
    return True


def hang_one(folder: Path, plan: Plan, victim: int) -> str:
    """Let one rank hang there; return what the other one said about it."""
    codes = start(folder, f"hang {plan}", victim, timeout=5.0)
    other = 1 - victim
    assert codes[other] == 1, (plan, codes)
    return (folder / f"error-{other}.txt").read_text()


def random_kills(folder: Path, count: int, *, seed: int) -> Toll:
    """Kill one of the ranks this many times, at random."""
    whole = whole_run(folder / "whole")
    dice = random.Random(seed)
    toll = Toll()
    while len(toll.kills) < count:
        chain = folder / f"chain-{len(toll.kills)}"
        mine: list[Plan] = []
        while len(toll.kills) + len(mine) < count:
            plan = drawn(dice, {**whole[0]["counts"], "load": 40 if mine else 0}, reach=0.4)
            if not kill_one(chain, plan, dice.randrange(WORLD)):
                break
            mine.append(plan)
        else:
            assert start(chain, "", -1) == [0] * WORLD
        toll.add(mine, *compared(results_of(chain), whole))
    return toll
