"""The tables of docs/scale.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import table
from benchmarks.scale import failures, fit, gpu, uneven
from benchmarks.scale.assumed import RANKS, Assumed
from benchmarks.scale.windows import KINDS, SYNCS, window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.scale.fit import Point
    from benchmarks.scale.windows import Kind, Sync

NAMES: dict[Kind, str] = {"ddp": "DDP", "fsdp": "FSDP2", "fsdp-kept": "FSDP2, kept"}
VARIATIONS = (0.02, 0.1, 0.3)
HOURS = (5_000, 50_000, 500_000)
STRETCHES, SEED = 20_000, 7
SHAPES = {None: "first", "second": "second", "fresh": "third"}
"""The models that were measured: where they are in the file, and what the page calls them."""


def gloo() -> str:
    """Return how well the model of this machine predicts what was measured on it."""
    data = fit.measurements()
    machine = fit.fitted(data)
    found = fit.points(data, machine)
    collectives = [each for each in found if "window" not in each.what]
    rows, unfitted = [], []
    for name, shape in SHAPES.items():
        windows = found if name is None else fit.points(data[name], machine)
        for each in windows:
            if "window" in each.what:
                rows.append([shape, each.what, *_cells(each)])
                unfitted += [] if each.fitted else [each]
    head = ["model", "window", "ranks", "measured, core ms", "predicted", "off by", ""]
    words = (
        f"A message takes {machine.inside.message * 1e6:.0f} µs of a core, a byte that is sent "
        f"{machine.inside.byte * 1e9:.2f} ns, a byte that is copied {machine.copy * 1e9:.2f} ns, "
        f"and sharding {machine.shard_call * 1e6:.0f} µs around every collective. "
        f"{len(collectives)} collectives of 16 KiB to 16 MiB on 2, 4 and 8 ranks: of those it was "
        f"fitted to {_errors(each for each in collectives if each.fitted)}; of the others "
        f"{_errors(each for each in collectives if not each.fitted)}. Of the windows that it was "
        f"not fitted to {_errors(unfitted)}.\n\n"
        f"Machine: {data['machine']}. Versions: {data['versions']}."
    )
    return f"{table(head, rows)}\n\n{words}"


def _cells(point: Point) -> list[str]:
    return [
        str(point.ranks),
        f"{point.measured * 1e3:.0f}",
        f"{point.predicted * 1e3:.0f}",
        f"{point.error:+.0%}",
        "fitted" if point.fitted else "",
    ]


def device() -> str:
    """Return how well the model of one GPU predicts the repository's benchmark."""
    found = gpu.figures()
    model = gpu.fitted(found)
    rows = []
    for tokens in (512, 1024, 2048):
        took = found[f"gpt-{tokens}"][gpu.WAY][0]
        made = model.window(tokens) * 1e3
        state = "fitted" if tokens in gpu.FITTED_TOKENS else "predicted"
        cells = [f"{took:.1f}", f"{made:.1f}", f"{made / took - 1:+.1%}", state]
        rows.append([f"window of 8 × {tokens:,} tokens, ms", *cells])
    held = found["gpt-512"][gpu.LEAST_WAY][1]
    states = gpu.PARAMETERS * 16 / 2**30
    cells = [f"{held:.1f}", f"{states:.1f}", f"{states / held - 1:+.1%}", "predicted"]
    rows.append(["memory of 742 M parameters, GiB", *cells])
    words = (
        f"A micro-batch takes {model.fixed * 1e3:.2f} ms and its arithmetic at "
        f"{model.rate / 1e12:.0f} Tflop/s. Measured: `benchmarks/README.md`, "
        f"`{gpu.WAY}` (windows) and `{gpu.LEAST_WAY}` (memory), one NVIDIA H200."
    )
    return f"{table(['', 'measured', 'model', 'off by', ''], rows)}\n\n{words}"


def windows(assumed: Assumed) -> str:
    """Return time and bytes of a window, over the number of ranks."""
    machine, job = assumed.machine(), assumed.job(gpu.fitted(gpu.figures()))
    head = ["ranks", *(f"{NAMES[kind]}, {sync}" for kind, sync in _ways())]
    times, sent, held = [], [], []
    for ranks in RANKS:
        made = [window(machine, job, ranks, kind, sync) for kind, sync in _ways()]
        times.append([f"{ranks:,}", *(f"{each.seconds * 1e3:,.0f}" for each in made)])
        sent.append([f"{ranks:,}", *(f"{each.sent / 1e9:,.2f}" for each in made)])
        held.append([f"{ranks:,}", *(f"{each.held / 2**30:,.2f}" for each in made)])
    return (
        f"Milliseconds of a window:\n\n{table(head, times)}\n\n"
        f"GB that every rank sends in it:\n\n{table(head, sent)}\n\n"
        f"GiB of parameters, gradients and states that every rank holds:\n\n{table(head, held)}"
    )


def slowest(assumed: Assumed) -> str:
    """Return what uneven work adds to a window."""
    head = ["ranks", "standard deviations"]
    head += [f"{v:.0%}, per {sync}" for v in VARIATIONS for sync in SYNCS]
    machine, model = assumed.machine(), gpu.fitted(gpu.figures())
    rows = []
    for ranks in RANKS[1:]:
        cells = [f"{ranks:,}", f"{uneven.expected_maximum(ranks):.2f}"]
        for variation in VARIATIONS:
            job = assumed.job(model, variation=variation)
            computed = job.micro_batches * job.micro_seconds
            for sync in SYNCS:
                made = window(machine, job, ranks, "ddp", sync)
                cells.append(f"+{made.waited / computed:.0%}")
        rows.append(cells)
    return table(head, rows)


def lost(assumed: Assumed) -> str:
    """Return what failures and checkpoints cost."""
    head = ["ranks"]
    for hours in HOURS:
        head += [f"{hours:,} h: checkpoint every", "useful"]
    head += [f"{assumed.mtbf:,.0f} h: Young", "Daly", "best", "expected, s", "played, s"]
    rows = []
    for ranks in (8, 64, 256, 1024, 4096, 16384):
        cells = [f"{ranks:,}"]
        for hours in HOURS:
            plant = assumed.plant(ranks, mtbf=hours)
            cells += [_duration(failures.best(plant)), f"{failures.useful(plant):.1%}"]
        plant = assumed.plant(ranks)
        work = failures.best(plant)
        mean, error = failures.simulated(plant, work, STRETCHES, SEED)
        cells += [_duration(failures.young(plant)), _duration(failures.daly(plant))]
        cells += [_duration(work), f"{failures.expected(plant, work):,.0f}"]
        rows.append([*cells, f"{mean:,.0f} ± {error:,.0f}"])
    return table(head, rows)


def together(assumed: Assumed) -> str:
    """Return which share of the ranks' time is computing that stays, everything counted."""
    machine, model = assumed.machine(), gpu.fitted(gpu.figures())
    job = assumed.job(model, variation=assumed.variation)
    alone = job.micro_batches * job.micro_seconds + job.close_seconds
    head = ["ranks", *(f"{NAMES[kind]}, {sync}" for kind, sync in _ways())]
    rows = []
    for ranks in RANKS:
        kept = failures.useful(assumed.plant(ranks))
        made = [window(machine, job, ranks, kind, sync) for kind, sync in _ways()]
        rows.append([f"{ranks:,}", *(f"{alone / each.seconds * kept:.0%}" for each in made)])
    return table(head, rows)


def _ways() -> list[tuple[Kind, Sync]]:
    """Return the ways that make sense: parameters that are kept need no reduction in between."""
    return [(k, s) for k in KINDS for s in SYNCS if (k, s) != ("fsdp-kept", "micro-batch")]


def _errors(points: Iterable[Point]) -> str:
    errors = sorted(abs(each.error) for each in points)
    middle = errors[len(errors) // 2]
    return f"the middle one is off by {middle:.0%}, the worst by {errors[-1]:.0%}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
