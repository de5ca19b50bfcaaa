"""The picture of scale: windows, uneven work and failures over the number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from benchmarks.scale import failures, gpu
from benchmarks.scale.tables import HOURS, NAMES
from benchmarks.scale.windows import window

if TYPE_CHECKING:
    from typing import Any

    from benchmarks.scale.assumed import Assumed
    from benchmarks.scale.windows import Kind, Sync

PICTURE = Path(__file__).parents[2] / "docs" / "img" / "scale.png"
RANKS = tuple(2**power for power in range(15))
WAYS: tuple[tuple[Kind, Sync, str, str], ...] = (
    ("ddp", "window", "#1f6fb2", "-"),
    ("ddp", "micro-batch", "#1f6fb2", ":"),
    ("fsdp", "window", "#c8452e", "-"),
    ("fsdp", "micro-batch", "#c8452e", ":"),
    ("fsdp-kept", "window", "#3f8f4f", "-"),
)


def draw(assumed: Assumed, path: Path = PICTURE) -> None:
    """Save three panels: the time of a window, what is waited, and what failures leave."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    model, machine = gpu.fitted(gpu.figures()), assumed.machine()
    even, ragged = assumed.job(model), assumed.job(model, variation=assumed.variation)
    for kind, sync, colour, style in WAYS:
        made = [window(machine, even, ranks, kind, sync) for ranks in RANKS]
        label = f"{NAMES[kind]}, sync per {sync}"
        seconds = [each.seconds * 1e3 for each in made]
        first.plot(RANKS, seconds, color=colour, ls=style, lw=1.8, label=label)
    first.set_ylabel("milliseconds of a window")
    first.set_ylim(bottom=0)
    first.legend(frameon=False, fontsize=8, loc="lower right")
    for sync, style in (("window", "-"), ("micro-batch", ":")):
        made = [window(machine, ragged, ranks, "ddp", sync) for ranks in RANKS]
        waited = [100 * each.waited / (8 * ragged.micro_seconds) for each in made]
        second.plot(RANKS, waited, color="#1f6fb2", ls=style, lw=1.8, label=f"sync per {sync}")
    second.set_ylabel(f"% waited, if micro-batches vary by {assumed.variation:.0%}")
    second.legend(frameon=False, fontsize=8)
    for hours, colour in zip(HOURS, ("#c8452e", "#1f6fb2", "#3f8f4f"), strict=True):
        plants = [assumed.plant(ranks, mtbf=hours) for ranks in RANKS]
        share = [100 * failures.useful(plant) for plant in plants]
        third.plot(RANKS, share, color=colour, lw=1.8, label=f"one in {hours:,} h")
    third.set_ylabel("% of the time that is useful, failures of a rank")
    third.legend(frameon=False, fontsize=8)
    for axes in (first, second, third):
        _tidy(axes)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _tidy(axes: Any) -> None:
    axes.set_xscale("log", base=2)
    ticks = [4**power for power in range(8)]
    axes.set_xticks(ticks, [f"{tick // 1024}k" if tick >= 1024 else str(tick) for tick in ticks])
    axes.set_xlabel("ranks")
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
