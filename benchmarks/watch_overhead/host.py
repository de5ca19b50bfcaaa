"""`python -m benchmarks.watch_overhead.host`: what watching the large GPT costs its host.

The GPT of the GPU's tables with its 12 layers, its modules, its 101 parameters and its windows of 8
micro-batches, but so narrow that nothing is left to compute: on the CPU its time is that of the
host. It is watched and not watched in turns in one process; `--beside` runs the same with the
`src` of another commit, in turns with this one. Calls are those of functions, in Python and from
it: they are the same in every run.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

import instep
from benchmarks.gpu.models import GPT, loss_of
from benchmarks.overhead.measure import Spread
from benchmarks.report import table

STEP = 209.67
"""Milliseconds of a window of 8 × 2,048 tokens on the H200, in the plain loop."""
MICRO_BATCHES = 8
MEASURED, LATER = "measured", "not measured"
_WARM_UP = {MEASURED: 10, LATER: 520}
"""Updates of a watch before those that are timed: the first 40 are all measured, and losses are
read until the 512th. The rules have looked by the 10th."""
_TIMED = {MEASURED: 24, LATER: 60}
_COUNTED = 4

Window = Callable[[Tensor], None]
Round = dict[str, tuple[float, float]]
"""Microseconds and calls, by when and by size."""


def plain_loop() -> Window:
    """Return the loop of the GPU's table, on a GPT that is 16 wide."""
    torch.manual_seed(0)
    model = GPT(width=16, words=32, length=8)
    for block in model.blocks:
        block.heads = 1  # type: ignore[assignment]  # a width of 16 has none of 128
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def window(batch: Tensor) -> None:
        for piece in batch.split(1):
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model, piece) / len(batch)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return window


def added(window: Window, size: int, when: str) -> tuple[float, float]:
    """Return the microseconds and the calls that a watch adds to an update."""
    batch = torch.randint(32, (size, 5))
    gc.collect()
    gc.disable()
    before, calls = _microseconds(window, batch, _TIMED[when]), _calls(window, batch)
    with instep.watch(live=False) as job:
        for _ in range(_WARM_UP[when]):
            window(batch)
        if when == LATER:
            job.sampler.spent = float("inf")  # its share of the time is used up
            window(batch)
        watched = _microseconds(window, batch, _TIMED[when])
        more = _calls(window, batch) - calls
    after = _microseconds(window, batch, _TIMED[when])
    gc.enable()
    return watched - (before + after) / 2, more


def _microseconds(window: Window, batch: Tensor, updates: int) -> float:
    """Return the time of the fastest update: others may work on the machine as well."""
    times = []
    for _ in range(updates):
        started = time.thread_time()
        window(batch)
        times.append(time.thread_time() - started)
    return min(times) * 1e6


def _calls(window: Window, batch: Tensor) -> float:
    """Return the calls of functions in an update."""
    calls = 0

    def called(frame: object, event: str, value: object) -> None:
        nonlocal calls
        del frame, value
        calls += event in {"call", "c_call"}

    sys.setprofile(called)
    for _ in range(_COUNTED):
        window(batch)
    sys.setprofile(None)
    return calls / _COUNTED


def one_round() -> Round:
    """Return what a watch adds to an update, by when and by size, on the code that is imported."""
    torch.set_num_threads(1)
    window = plain_loop()
    for _ in range(5):
        window(torch.randint(32, (MICRO_BATCHES, 5)))
    return {
        f"{when}/{size}": added(window, size, when)
        for when in (MEASURED, LATER)
        for size in (1, MICRO_BATCHES)
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    options = _parser().parse_args(arguments)
    if options.once:
        print(json.dumps(one_round()))
        return 0
    trees = {"this code": Path(instep.__file__).parents[1]}
    if options.beside is not None:
        trees[str(options.beside)] = options.beside
    rounds: dict[str, list[Round]] = {name: [] for name in trees}
    for turn in range(options.rounds):
        for name in list(trees) if turn % 2 else list(reversed(trees)):
            rounds[name].append(_in_a_process(trees[name]))
    header = [
        "code",
        "when",
        "µs per update",
        "µs per micro-batch",
        "calls per update",
        "of a step",
    ]
    print(table(header, _rows(rounds)))
    return 0


def _rows(rounds: dict[str, list[Round]]) -> list[list[str]]:
    rows = []
    for name, said in rounds.items():
        for when in (MEASURED, LATER):
            whole = [each[f"{when}/{MICRO_BATCHES}"] for each in said]
            alone = median(each[f"{when}/1"][0] for each in said)
            took = Spread.of([microseconds for microseconds, _ in whole])
            each = (took.middle - alone) / (MICRO_BATCHES - 1)
            calls = median(calls for _, calls in whole)
            share = f"{took.middle / (STEP * 1e3):.2%}"
            rows.append([name, when, took.text(".0f"), f"{each:.0f}", f"{calls:.0f}", share])
    return rows


def _in_a_process(tree: Path) -> Round:
    command = [sys.executable, "-m", "benchmarks.watch_overhead.host", "--once"]
    environ = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    said: Round = json.loads(done.stdout)
    return said


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.watch_overhead.host", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=9, help="default: %(default)s")
    parser.add_argument("--beside", type=Path, help="the `src` of another commit")
    parser.add_argument("--once", action="store_true", help="one round, as numbers")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
