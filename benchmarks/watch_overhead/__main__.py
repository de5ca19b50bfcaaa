"""`python -m benchmarks.watch_overhead`: the time of a step under watch, over that without."""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from benchmarks.report import table, versions, write_section
from benchmarks.watch_overhead import jobs, peers
from benchmarks.watch_overhead.measure import measure, memory


@dataclass(frozen=True)
class Row:
    """A job, its goal, and how long it is run in one round."""

    name: str
    make: Callable[[str], jobs.Train]
    goal: float | None
    updates: int
    warm_up: int


# The goal is one of steps of 0.2 ms, which the smaller one takes on a slow machine alone.
SMALLEST = Row("MLP, 32 → 64 → 10, 16 samples", jobs.mlp, None, 1000, 600)
WIDER = Row(
    "MLP, 32 → 512 → 10, 64 samples", lambda device: jobs.mlp(device, 512, 64), 1.30, 1000, 600
)
SMALL = Row(
    "transformer, 4 layers of 256, 8 × 128 tokens",
    lambda device: jobs.transformer(device, jobs.SMALL),
    1.03,
    6,
    10,
)
LARGE = Row(
    "transformer, 12 layers of 1024, 8 × 1024 tokens, bf16",
    lambda device: jobs.transformer(device, jobs.LARGE),
    1.01,
    20,
    10,
)


def main(arguments: list[str] | None = None) -> int:
    """Exit 0 when the table was made, 1 if a goal was missed and `--check` asks for it."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    rows = [SMALLEST, WIDER, SMALL, *([LARGE] if options.device != "cpu" else [])]
    lines, missed = [], []
    for row in rows:
        cost = measure(
            row.make(options.device),
            rounds=options.rounds,
            updates=row.updates,
            warm_up=row.warm_up,
            device=options.device,
        )
        if row.goal is not None and cost.ratio.middle > row.goal:
            missed.append(row.name)
        lines.append(
            [
                row.name,
                f"{cost.plain.middle:.2f}",
                cost.ratio.text(".3f"),
                "–" if row.goal is None else f"{row.goal:.2f}",
                cost.again.text(".3f"),
            ]
        )
    header = ["job", "ms per step", "× under watch", "goal", "× the same again, not watched"]
    sections = [table(header, lines), _memory(options.device), _traincheck(options)]
    where = "one thread, CPU" if options.device == "cpu" else torch.cuda.get_device_name()
    sections.append(
        f"Medians of {options.rounds} rounds with their quartiles; one process, {where}. "
        f"Versions: {versions(('torch',))}."
    )
    body = "\n\n".join(sections)
    print(body)
    if options.write:
        write_section("watch-overhead" if options.device == "cpu" else "watch-overhead-gpu", body)
    if missed and options.check:
        print(f"above its goal: {', '.join(missed)}", file=sys.stderr)
        return 1
    return 0


def _memory(device: str) -> str:
    train = jobs.mlp(device)
    few, many = 1_000, 20_000
    return (
        f"Memory of the watcher of the MLP: {memory(train, few):.1f} MB after {few:,} updates, "
        f"{memory(train, many):.1f} MB after {many:,}."
    )


def _traincheck(options: argparse.Namespace) -> str:
    if options.device != "cpu":
        return "TrainCheck was not run on this device."
    pairs = peers.traincheck(options.traincheck)
    if not pairs:
        return "TrainCheck was not installed (`make bench-watch` does it)."
    plain, traced = (median(times) * 1e3 for times in zip(*pairs, strict=True))
    ratio = median(traced / plain for plain, traced in pairs)
    return (
        f"TrainCheck 0.2.0 on the MLP (`traincheck-collect`, its defaults, the model tracked): "
        f"{plain:.2f} ms per step without, {traced:.1f} ms with: × {ratio:.0f}."
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.watch_overhead", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--write", action="store_true", help="put the table into the README")
    parser.add_argument("--check", action="store_true", help="a goal that is missed is an error")
    parser.add_argument(
        "--traincheck", type=Path, default=peers.PYTHON, help="a Python that has TrainCheck"
    )
    return parser


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    raise SystemExit(main())
