"""SIGKILL anywhere, and the training ends with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from instep.checkpoint import files
from tests.faults import job
from tests.faults.harness import (
    ROOT,
    Chain,
    differences,
    lost_or_doubled,
    random_kills,
    result_of,
    whole_run,
)
from tests.faults.plan import PHASES, Plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def whole(folder):
    """What a run is that nobody stops, without and with workers."""
    return {workers: whole_run(folder / f"whole-{workers}", workers) for workers in (0, 2)}


# In the very first checkpoint; in a forward, the first update, a save whose file is half written, a
# load, a backward in the middle of a window, while names change, and in the last epoch.
PLACES = ["save:40", "forward:95", "close:30", "save:120", "load:20", "backward:230", "save:205"]
PLACES += ["data:2", "close:400"]


@pytest.mark.parametrize("workers", [0, 2])
def test_one_training_killed_in_every_phase(folder, whole, workers):
    chain = Chain(folder / f"chain-{workers}", workers)
    for place in PLACES:
        assert chain.kill(Plan.parse(place)), f"{place} was not reached"
    assert {plan.phase for plan in chain.kills} == set(PHASES)
    found = chain.finish()
    assert differences(found, whole[workers]) == []
    assert lost_or_doubled(found["seen"]) == 0
    logged = (chain.folder / job.LOG).read_text().split()
    assert logged == PLACES


def test_a_file_that_is_half_written_is_not_taken_for_a_checkpoint(folder, whole):
    chain = Chain(folder / "half", 0)
    sizes = []
    for at in range(150, 250, 18):
        if not chain.kill(Plan("save", at)):
            break
        halves = [p for p in chain.folder.iterdir() if p.name.endswith(".writing")]
        sizes += [p.stat().st_size for p in halves]
        assert files.read(chain.folder / job.CHECKPOINT)
    assert any(size > 10_000 for size in sizes)
    assert differences(chain.finish(), whole[0]) == []


def test_as_a_program(tmp_path, whole):
    def run(fault: str) -> int:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "tests.faults.job", str(tmp_path)]
        return subprocess.run(
            command, cwd=ROOT, env={**environment, "INSTEP_FAULT": fault}, check=False, timeout=120
        ).returncode

    assert run("backward:400") == -signal.SIGKILL
    assert run("") == 0
    assert differences(result_of(tmp_path), whole[0]) == []


def test_a_few_at_random(folder):
    toll = random_kills(folder / "random", 6, workers=0, seed=7)
    assert (len(toll.kills), toll.survived, toll.lost) == (6, 6, 0)


def test_the_comparison_has_teeth(whole):
    found = {**whole[0], "model": {**whole[0]["model"]}}
    found["model"]["norm.bias"] = found["model"]["norm.bias"] + 1e-7
    assert differences(found, whole[0]) == ["/model/norm.bias"]
    seen = whole[0]["seen"]
    assert lost_or_doubled(seen[1:]) == 1
    assert lost_or_doubled([*seen, seen[0]]) == 1
    assert differences(whole[0], whole[2]) != []
