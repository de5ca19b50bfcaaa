"""Jobs in processes of their own, killed and started again until they are done."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.faults import job
from tests.faults.plan import Plan, drawn

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


@contextmanager
def path_of_this_project() -> Iterator[None]:
    """Let the processes find what this one has found."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), before or ""])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def context() -> Any:
    """Return what starts processes: a server that has torch imported forks each of them."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.faults.job"])
    return found


def start(folder: Path, plan: Plan | None, workers: int) -> int:
    """Run a job to its end, or to its planned one; return how it ended."""
    with path_of_this_project():
        process = context().Process(target=job.work, args=(str(folder), str(plan or ""), workers))
        process.start()
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"a job hung: {plan}, {workers} workers")
    code: int = process.exitcode
    return code


def result_of(folder: Path) -> dict[str, Any]:
    return torch.load(folder / job.RESULT, weights_only=True)


def whole_run(folder: Path, workers: int) -> dict[str, Any]:
    """Run a job that nobody stops."""
    folder.mkdir(parents=True, exist_ok=True)
    assert start(folder, None, workers) == 0
    return result_of(folder)


@dataclass
class Chain:
    """One training, killed at each of these places in turn."""

    folder: Path
    workers: int
    kills: list[Plan] = field(default_factory=list)

    def kill(self, plan: Plan) -> bool:
        """Start it, and have it killed there; return whether it came to be."""
        self.folder.mkdir(parents=True, exist_ok=True)
        code = start(self.folder, plan, self.workers)
        assert code in (0, -signal.SIGKILL), f"{plan} ended with {code}"
        if code:
            self.kills.append(plan)
        return code != 0

    def finish(self) -> dict[str, Any]:
        """Start it once more, and leave it alone."""
        assert start(self.folder, None, self.workers) == 0
        return result_of(self.folder)


def differences(found: Any, expected: Any, place: str = "") -> list[str]:
    """Return where two results are not the same, bit for bit."""
    if isinstance(expected, torch.Tensor):
        return [] if torch.equal(found, expected) else [place]
    if isinstance(expected, dict):
        keys = [place] if found.keys() != expected.keys() else []
        return keys + [
            each
            for key in expected.keys() & found.keys()
            if key != "counts"
            for each in differences(found[key], expected[key], f"{place}/{key}")
        ]
    return [] if found == expected else [place]


def lost_or_doubled(seen: list[tuple[int, int]]) -> int:
    """Return how many lines are not in exactly one update of each epoch."""
    wanted = [(epoch, index) for epoch in range(job.EPOCHS) for index in range(job.LINES)]
    counts = [seen.count(each) for each in wanted]
    return sum(abs(count - 1) for count in counts) + len(seen) - sum(counts)


def random_kills(folder: Path, count: int, *, workers: int, seed: int) -> tuple[list[Plan], int]:
    """Kill jobs this many times, at random; return where, and how many lines were lost.

    Each training is killed again and again until it is done by luck, and then compared.
    """
    whole = whole_run(folder / "whole", workers)
    dice = random.Random(seed)
    counts = {**whole["counts"]}
    kills: list[Plan] = []
    lost = 0
    while len(kills) < count:
        chain = Chain(folder / f"chain-{len(kills)}", workers)
        # Loading happens only where there is something to load.
        while len(kills) + len(chain.kills) < count:
            known = {**counts, "load": 40 if chain.kills else 0}
            if not chain.kill(drawn(dice, known, reach=0.4)):
                break
        found = chain.finish()
        different = differences(found, whole)
        assert not different, f"after {list(map(str, chain.kills))}: {different}"
        lost += lost_or_doubled(found["seen"])
        kills += chain.kills
    return kills, lost
