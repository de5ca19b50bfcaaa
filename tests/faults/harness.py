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


@dataclass
class Toll:
    """What random kills have come to."""

    kills: list[Plan] = field(default_factory=list)
    survived: int = 0
    lost: int = 0
    """Lines that are not in exactly one update of each epoch."""

    def add(self, kills: list[Plan], different: list[str], lost: int) -> None:
        """Count one training that was killed so often."""
        self.kills += kills
        self.lost += lost
        if different:
            print(f"after {list(map(str, kills))}: {different}", flush=True)
        else:
            self.survived += len(kills)


def random_kills(folder: Path, count: int, *, workers: int, seed: int) -> Toll:
    """Kill jobs this many times, at random.

    Each training is killed again and again until it is done by luck, and then compared.
    """
    whole = whole_run(folder / "whole", workers)
    dice = random.Random(seed)
    toll = Toll()
    while len(toll.kills) < count:
        chain = Chain(folder / f"chain-{len(toll.kills)}", workers)
        while len(toll.kills) + len(chain.kills) < count:
            # Loading happens only where there is something to load.
            known = {**whole["counts"], "load": 40 if chain.kills else 0}
            if not chain.kill(drawn(dice, known, reach=0.4)):
                break
        found = chain.finish()
        toll.add(chain.kills, differences(found, whole), lost_or_doubled(found["seen"]))
    return toll
