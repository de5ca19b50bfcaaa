"""`python -m benchmarks.splits`: gradient error, cost, drift and memory of splits."""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from benchmarks.report import table, versions, write_section
from benchmarks.splits import coupled, gradients, memory, peers, picture, timing

PACKAGES = ("torch", *peers.PACKAGES)
UPDATES = 25


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    networks: list[str] | None
    updates: int
    rounds: int
    side: int
    patch: int
    sides: tuple[int, ...]
    memory_patch: int


FULL = Size(None, UPDATES, 5, 512, 128, (256, 512, 1024, 2048), 128)
QUICK = Size(["plain", "PixelShuffle x2"], 2, 2, 96, 32, (96, 128), 32)


def main(arguments: list[str] | None = None) -> int:
    """Exit 0 when the tables were made, 1 if ours is inexact, 2 if a required peer is missing."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    missing = [package for package in peers.PACKAGES if not peers.installed(package)]
    if missing and options.require_peers:
        print(f"a peer is missing: {', '.join(missing)}", file=sys.stderr)
        return 2
    size = QUICK if options.quick else FULL
    exact = True
    for name, section in SECTIONS.items():
        if options.only and name not in options.only:
            continue
        body, is_exact = section(size, options.write)
        exact = exact and is_exact
        print(f"{body}\n", flush=True)
        if options.write:
            write_section(f"splits-{name}", body)
    return 0 if exact else 1


Section = Callable[[Size, bool], tuple[str, bool]]


def _gradients(size: Size, _: bool) -> tuple[str, bool]:
    header = ["network", "image", "patch", "**`Patches`**", "`halo=0`", "naive loop"]
    header += ["MONAI `PatchIter`", "TorchIO `GridSampler`"]
    rows, worst = [], 0.0
    for case in gradients.cases(size.networks):
        found = gradients.errors(case)
        worst = max(worst, float(found["Patches"]))
        image = " × ".join(map(str, case.shape))
        cells = [value if isinstance(value, str) else f"{value:.1e}" for value in found.values()]
        rows.append([case.name, image, str(case.patch), *cells])
    text = f"{table(header, rows)}\n\nfloat64, CPU. Versions: {versions(PACKAGES)}."
    return text, worst < gradients.EXACTLY


def _cost(size: Size, _: bool) -> tuple[str, bool]:
    header = ["network", "side", "patch", "halo", "(patch + halos)ⁿ / patchⁿ", "pixels read ×"]
    header += ["time ×", "probe, once (s)"]
    rows = []
    for case in gradients.cases(size.networks):
        found = timing.cost(case.name, rounds=size.rounds, side=size.side, patch=size.patch)
        sizes = [str(found.side), str(found.patch), f"{found.before}, {found.after}"]
        factors = [f"{found.theory:.2f}", f"{found.pixels:.2f}", found.time.text(".2f")]
        rows.append([case.name, *sizes, *factors, f"{found.probe:.2f}"])
    words = (
        f"Medians of {size.rounds} rounds in turns with their quartiles; CPU time of one thread, "
        f"float32; the probe is time on the wall. Versions: {versions(['torch'])}."
    )
    return f"{table(header, rows)}\n\n{words}", True


def _drift(size: Size, _: bool) -> tuple[str, bool]:
    rows, worst = [], 0.0
    for case in gradients.cases(size.networks):
        naive, exact = gradients.drift(case, size.updates)
        worst = max(worst, exact)
        rows.append([case.name, f"{exact:.1e}", f"{naive:.0%}"])
    header = ["network", "**`Patches`**", "naive loop"]
    words = f"After {size.updates} updates of Adam (lr 1e-3), float64, CPU."
    return f"{table(header, rows)}\n\n{words}", worst < gradients.EXACTLY


def _memory(size: Size, draw: bool) -> tuple[str, bool]:
    found: Mapping[tuple[str, str], list[float]] = {
        (network, way): [memory.measured(network, way, n, size.memory_patch) for n in size.sides]
        for network in memory.NETWORKS
        for way in memory.WAYS
    }
    rows = [[*key, *(f"{mebi:,.0f}" for mebi in each)] for key, each in found.items()]
    if draw:
        picture.draw(found, size.sides, size.memory_patch)
    header = ["network", "way", *(f"{side}²" for side in size.sides)]
    words = (
        f"MiB, patches of {size.memory_patch}, float32, CPU, one thread. "
        f"Versions: {versions(['torch'])}."
    )
    return f"{table(header, rows)}\n\n{words}", True


def _batches(size: Size, _: bool) -> tuple[str, bool]:
    rows, worst = [], 0.0
    cases = [case for case in coupled.micro() if not size.networks or case.name in size.networks]
    for kind, listed in (("`Micro`", cases), ("two passes", list(coupled.coupled()))):
        for case in listed:
            ours, naive = coupled.errors(case)
            worst = max(worst, ours)
            rows.append([kind, case.name, f"{ours:.1e}", f"{naive:.1e}"])
    ours, naive = coupled.pooled()
    rows.append(["two passes over patches", "pooled classifier", f"{ours:.1e}", f"{naive:.1e}"])
    worst = max(worst, ours)
    for mode in ("window", "exact"):
        ours, naive = coupled.errors(coupled.normed(mode))
        worst = max(worst, ours if mode == "exact" else 0.0)
        rows.append([f'`batchnorm="{mode}"`', "three layers", f"{ours:.1e}", f"{naive:.1e}"])
    header = ["way", "network or loss", "**instep**", "mean over pieces"]
    words = (
        f"{coupled.SAMPLES} samples in pieces of {coupled.PIECE} (patches of 16 for the "
        f"classifier), float64, CPU. Versions: {versions(['torch'])}."
    )
    return f"{table(header, rows)}\n\n{words}", worst < gradients.EXACTLY


SECTIONS: dict[str, Section] = {
    "gradients": _gradients,
    "cost": _cost,
    "drift": _drift,
    "memory": _memory,
    "batches": _batches,
}
"""By the name of their place in the README."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.splits", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the tables into the README")
    parser.add_argument("--require-peers", action="store_true", help="a missing peer is an error")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS))
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
