"""`python -m benchmarks.watch_overhead.host`: what watching the large GPT costs its host.

The GPT of the GPU's tables with its 12 layers, its modules, its 101 parameters and its windows of 8
micro-batches, but 16 wide, and nothing is computed in its layers: on the CPU, operations of torch
would take thirty times as long as the watch that is to be told from them. What is hooked, called,
read and told is the same. It is watched and not watched in turns in one process; `--beside` runs
the same with the `src` of another commit, in turns with this one, round by round. Calls are those
of functions, in Python and from it: they are the same in every run.
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
from statistics import median, quantiles
from typing import Any

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
_MET = 12
"""Updates of a watch after which everything was met and told, and the rules have looked; the first
40 are all measured."""
_READ = 512
"""Those whose losses are read. It does not matter how many micro-batches they have, so that they
have one: of eight, they would take as long as all that is timed."""
_TIMED = {1: 60, MICRO_BATCHES: 24}
"""Updates that are timed in one turn. With those that were met and are counted, they are fewer than
40 where they are measured."""
_TURNS = 6
"""Watches of which the first updates are timed, each after as many updates without one."""
_COUNTED = 4

Window = Callable[[Tensor], None]
Round = dict[str, tuple[float, float]]
"""Microseconds and calls, by when and by size."""


class _Skipped(torch.autograd.Function):
    """Layers that give on what they are given, and zeros to their parameters as gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, zeros: list[Tensor], *parameters: Tensor) -> Tensor:
        del parameters
        ctx.zeros = zeros
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0], None, *ctx.zeros


def skip_layers(model: GPT) -> None:
    """Leave out what the layers of a model compute."""
    parameters = list(model.blocks.parameters())
    zeros = [torch.zeros_like(parameter) for parameter in parameters]
    *others, last = model.blocks
    for block in others:
        block.forward = lambda x: x
    last.forward = lambda x: _Skipped.apply(x, zeros, *parameters)


def plain_loop() -> Window:
    """Return the loop of the GPU's table, on a GPT that is 16 wide and computes no layer."""
    torch.manual_seed(0)
    model = GPT(width=16, words=32, length=8)
    skip_layers(model)
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


def measured(window: Window, size: int) -> tuple[float, float]:
    """Return the microseconds and the calls that a watch adds to an update that is measured."""
    batch = torch.randint(32, (size, 5))
    updates = min(_TIMED[size], _TIMED[MICRO_BATCHES])
    plain, watched, more = [], [], 0.0
    calls = _calls(window, batch)
    for _ in range(_TURNS):
        plain += _times(window, batch, updates)
        with instep.watch(live=False):
            for _ in range(_MET):
                window(batch)
            watched += _times(window, batch, updates)
            more = _calls(window, batch) - calls
    return _usual(watched) - _usual(plain), more


def later(window: Window) -> dict[int, tuple[float, float]]:
    """Return the same for updates that are not measured, by the size of their window."""
    batches = {size: torch.randint(32, (size, 5)) for size in _TIMED}
    plain = {size: _times(window, batch, _TIMED[size]) for size, batch in batches.items()}
    calls = {size: _calls(window, batch) for size, batch in batches.items()}
    watched, more = {}, {}
    with instep.watch(live=False) as job:
        for _ in range(_READ + 1):
            window(batches[1])
        job.sampler.spent = float("inf")  # its share of the time is used up
        for size, batch in batches.items():
            for _ in range(_MET):
                window(batch)
            watched[size] = _times(window, batch, _TIMED[size])
            more[size] = _calls(window, batch) - calls[size]
    for size, batch in batches.items():
        plain[size] += _times(window, batch, _TIMED[size])
    return {size: (_usual(watched[size]) - _usual(plain[size]), more[size]) for size in batches}


def _times(window: Window, batch: Tensor, updates: int) -> list[float]:
    """Return the microseconds of each of some updates."""
    times = []
    for _ in range(updates):
        started = time.thread_time()
        window(batch)
        times.append((time.thread_time() - started) * 1e6)
    return times


def _usual(times: list[float]) -> float:
    """Return the lower quartile: others may work on the machine as well."""
    return quantiles(times, n=4)[0]


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
    gc.collect()
    gc.disable()
    found = {f"{MEASURED}/{size}": measured(window, size) for size in _TIMED}
    found |= {f"{LATER}/{size}": each for size, each in later(window).items()}
    gc.enable()
    return found


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
        "calls in a window of one",
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
            calls = f"{median(calls for _, calls in whole):.0f}"
            of_one = f"{median(each[f'{when}/1'][1] for each in said):.0f}"
            share = f"{took.middle / (STEP * 1e3):.2%}"
            rows.append([name, when, took.text(".0f"), f"{each:.0f}", calls, of_one, share])
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
    parser.add_argument("--rounds", type=int, default=5, help="two or more; default: %(default)s")
    parser.add_argument("--beside", type=Path, help="the `src` of another commit")
    parser.add_argument("--once", action="store_true", help="one round, as numbers")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
