"""The example as its first lines say: with one process and with torchrun, killed and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from instep.checkpoint import files, folders
from tests.faults.harness import ROOT

SMALL = ["--lines=80", "--width=16", "--every=1"]
COMMANDS = {
    "one process": [sys.executable, "-m", "examples.train_lm"],
    "torchrun": [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"),
        *("-m", "examples.train_lm"),
    ],
}


def begin(command: list[str], path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    environment["OMP_NUM_THREADS"] = "1"
    return subprocess.Popen(
        [*command, *SMALL, f"--save={path}"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def weights(command: list[str], path: Path) -> str:
    """Run the example to its end, and return the digest that it prints."""
    process = begin(command, path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.splitlines()[-1]


def updates_in(path: Path) -> int:
    heads = [path, *(each / folders.MANIFEST for each in folders.finished(path))]
    return max((head.updates for each in heads if (head := files.whole_head(each))), default=-1)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_and_resumed(tmp_path, name):
    command = COMMANDS[name]
    expected = weights(command, tmp_path / "whole")
    assert expected.startswith("weights: ")
    path = tmp_path / "run"
    for wanted in (1, 3):
        process = begin(command, path)
        until = time.monotonic() + 300
        while process.poll() is None and updates_in(path) < wanted:
            assert time.monotonic() < until
            time.sleep(0.02)
        # All of its processes at once, wherever they are.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert updates_in(path) >= 3
    assert weights(command, path) == expected
