"""`python -m benchmarks.overhead`: Python time per micro-batch, over the plain loop."""

import argparse
import sys
from collections.abc import Sequence
from statistics import median

import torch

from benchmarks.overhead import peers, stepper
from benchmarks.overhead.measure import (
    Contestant,
    Timings,
    differences,
    measure,
    per_round_microseconds,
    ratios,
    split_costs,
)
from benchmarks.overhead.plain import make_batches, plain, plain_bf16
from benchmarks.report import table, versions, write_section

PLAIN = "plain loop"
WINDOW, LONG_WINDOW = 8, 32
CLIP_NORM = 1.0
PACKAGES = ("torch", "accelerate", "lightning")


def main(arguments: list[str] | None = None) -> int:
    """Exit 0 when the tables were made, 2 when a required peer is missing."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    others, missing = peers.installed(WINDOW)
    if missing and options.require_peers:
        print(f"a peer is missing: {', '.join(missing)}", file=sys.stderr)
        return 2
    conditions = (
        f"Medians of {options.rounds} rounds with their quartiles; one process, one thread, CPU. "
        f"Versions: {versions(PACKAGES)}."
    )
    sections = (
        *_single_precision(others, missing, options.rounds),
        *_autocast(options.rounds),
        *_split(options.rounds),
        conditions,
    )
    body = "\n\n".join(sections)
    print(body)
    if options.write:
        write_section("overhead", body)
    return 0


def _single_precision(
    others: Sequence[Contestant], missing: Sequence[str], rounds: int
) -> tuple[str, str]:
    contestants = [
        Contestant(PLAIN, plain(WINDOW)),
        # A second copy shows what a difference of nothing looks like on this machine.
        Contestant("the same loop again", plain(WINDOW)),
        Contestant("**Stepper**, items as an int", stepper.int_items(WINDOW)),
        Contestant("**Stepper**, items as a tensor", stepper.tensor_items(WINDOW)),
        Contestant("**Stepper**, function style", stepper.function_style(WINDOW)),
        *others,
    ]
    timings = measure(contestants, make_batches(50 * WINDOW), rounds=rounds)
    absent = [[name, "not installed", ""] for name in missing]
    return f"fp32, windows of {WINDOW}:", _comparison(timings, PLAIN, absent)


def _autocast(rounds: int) -> tuple[str, str]:
    baseline = "plain loop, autocast"
    contestants = [
        Contestant(baseline, plain_bf16(WINDOW)),
        Contestant('**Stepper**, `precision="bf16"`', stepper.int_items(WINDOW, precision="bf16")),
    ]
    timings = measure(contestants, make_batches(50 * WINDOW), rounds=rounds)
    return f"bf16 autocast, windows of {WINDOW}:", _comparison(timings, baseline, [])


def _split(rounds: int) -> tuple[str, str]:
    """Both window sizes and both kinds of close in one round-robin."""
    contestants = []
    for size in (WINDOW, LONG_WINDOW):
        for clip in (None, CLIP_NORM):
            contestants += [
                Contestant(f"plain {size} {clip}", plain(size, clip_norm=clip)),
                Contestant(f"stepper {size} {clip}", stepper.int_items(size, clip_norm=clip)),
            ]
    timings = measure(contestants, make_batches(32 * LONG_WINDOW), rounds=rounds)
    rows = []
    for clip, label in ((None, "no clipping"), (CLIP_NORM, "clipping by norm, in both loops")):
        short, long = (
            per_round_microseconds(timings, f"stepper {size} {clip}", f"plain {size} {clip}")
            for size in (WINDOW, LONG_WINDOW)
        )
        micro, close = split_costs(short, long, (WINDOW, LONG_WINDOW))
        rows.append([label, micro.text("+.1f"), close.text("+.1f")])
    header = ["Stepper over the plain loop", "µs per micro-batch alone", "µs per close"]
    return f"Windows of {WINDOW} against windows of {LONG_WINDOW}, solved:", table(header, rows)


def _comparison(timings: Timings, baseline: str, absent: list[list[str]]) -> str:
    rows = [
        [
            name,
            ratios(timings, name, baseline).text(".2f"),
            differences(timings, name, baseline).text("+.1f"),
        ]
        for name in timings
        if name != baseline
    ]
    first = [baseline, "1", f"{median(timings[baseline]) * 1e6:.1f} in all"]
    return table(["loop", "× the plain loop", "µs per micro-batch"], [first, *rows, *absent])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="default: %(default)s")
    parser.add_argument("--write", action="store_true", help="put the tables into the README")
    parser.add_argument("--require-peers", action="store_true", help="a missing peer is an error")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
