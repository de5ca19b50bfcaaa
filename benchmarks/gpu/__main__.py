"""`make bench-gpu`: everything about one GPU in one run, as one table per question."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import math
import platform
import statistics
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

import instep
from benchmarks.gpu.models import GPT, loss_of
from benchmarks.gpu.timing import (
    copy_bandwidth,
    host_microseconds,
    keep_busy,
    milliseconds,
    peak_gibibytes,
)
from benchmarks.gpu.ways import LIMIT, WAYS, Way, abreast, larger, optimizer_of, unsplit
from benchmarks.gpu.where import by_kind, kernels_of
from benchmarks.report import table, write_section

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

SAMPLES = 8
"""Of a window; each is a micro-batch."""
PEERS = {"Accelerate": "accelerate", "Fabric": "lightning_fabric"}


def close_rows() -> list[list[str]]:
    """Time the close of 739 M fp32 parameters, with clipping; the host is ahead of the device."""
    model = made(GPT)
    count = sum(p.numel() for p in model.parameters())
    floor = (8 * 4 * count) / copy_bandwidth()
    rows = [["memory floor: norm read + 7 words", f"{floor:.2f}", "1.00"]]
    for p in model.parameters():
        p.grad = torch.randn_like(p) * 1e-3

    def told(name: str, run: Callable[[], object]) -> None:
        took = milliseconds(run, is_ahead=True)
        rows.append([name, f"{took:.2f}", f"{took / floor:.2f}"])

    def plain(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
        def run() -> None:
            nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
            optimizer.step()

        return run

    told("default AdamW + clip_grad_norm_", plain(torch.optim.AdamW(model.parameters(), lr=1e-5)))
    told("fused AdamW + clip_grad_norm_", plain(optimizer_of(model)))
    model.zero_grad()
    stepper = instep.Stepper(model, optimizer_of(model), clip_norm=LIMIT, fused=True)
    loss = sum((p.sum() for p in model.parameters()), start=torch.zeros((), device="cuda"))

    times = []
    for _ in range(10):
        with stepper.window() as window:
            window.backward(loss, items=1, retain_graph=True)
            torch.cuda.synchronize()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            keep_busy()
            begin.record()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    took = sorted(times)[len(times) // 2]
    rows.append(["Stepper(fused=True), the whole close", f"{took:.2f}", f"{took / floor:.2f}"])
    return rows


def made(make: Callable[[], nn.Module]) -> nn.Module:
    """Make a model where it is used: drawing 742 M numbers on the host takes longer than a run."""
    with torch.device("cuda"):
        return make()


def measured(
    make: Callable[[], nn.Module], batch: Tensor, loss: Any, way: Way
) -> tuple[float, float]:
    """Time one way; return milliseconds and the peak of memory. Nothing of it is left behind."""
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    model = made(make)
    if way.fused:
        instep.fuse(model)
    called: Any = torch.compile(model) if way.compiled else model
    window = way.make(called, loss)
    return milliseconds(partial(window, batch), repeats=5), peak_gibibytes()


def window_rows(
    make: Callable[[], nn.Module], batch: Tensor, loss: Any, ways: Sequence[Way]
) -> list[list[str]]:
    """Time windows of one model in every way; peers that are not installed are left out."""
    rows, first = [], math.nan
    for way in ways:
        if way.name in PEERS and importlib.util.find_spec(PEERS[way.name]) is None:
            rows.append([way.name, "–", "–", "–"])
            continue
        try:
            took, peak = measured(make, batch, loss, way)
        except RuntimeError as error:
            rows.append([way.name, f"fails: {str(error).splitlines()[0][:60]}", "–", "–"])
        else:
            first = took if math.isnan(first) else first
            rows.append([way.name, f"{took:.2f}", f"{first / took:.2f}", f"{peak:.1f}"])
        print(*rows[-1], sep="\t", flush=True)
    return rows


def where_rows(batches: Sequence[Tensor]) -> list[list[str]]:
    """Say what the device is busy with in our fastest way, one micro-batch after the other."""
    way = WAYS[-1]
    columns = []
    for batch in batches:
        torch._dynamo.reset()
        compiled: Any = torch.compile(instep.fuse(made(GPT)))
        window = way.make(compiled, loss_of)
        milliseconds(partial(window, batch))
        columns.append(by_kind(kernels_of(partial(window, batch))))
    rows = [[kind, *(f"{column[kind]:.1f}" for column in columns)] for kind in columns[0]]
    return [*rows, ["all", *(f"{sum(column.values()):.1f}" for column in columns)]]


def product_rows() -> list[list[str]]:
    """Time the product that adds a weight's gradient to an fp32 buffer, by the rows it sums."""
    height, width = 6144, 2048
    into = torch.zeros(height, width, device="cuda")
    rows = []
    for count in (256, 512, 1024, 2048, 4096):
        given = torch.randn(count, height, device="cuda", dtype=torch.bfloat16)
        x = torch.randn(count, width, device="cuda", dtype=torch.bfloat16)

        def ten(given: Tensor = given, x: Tensor = x) -> None:
            for _ in range(10):
                torch.ops.aten.addmm.dtype_out(into, given.t(), x, torch.float32, out=into)

        took = 100 * milliseconds(ten)
        rows.append([f"{count}", f"{took:.1f}", f"{took * 512 / count:.1f}"])
    return rows


def overhead_rows() -> list[list[str]]:
    """Time the host in function style, captured, on a model that is nothing but launches."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
    stepper = instep.Stepper(model, optimizer_of(model), fused=True, capture=True)
    x = torch.randn(64, 64, device="cuda")

    def run(pieces: int) -> float:
        batch = x[:pieces]
        for _ in range(6):
            stepper.step(batch, lambda piece: model(piece).square().mean(), split=1)
        return host_microseconds(
            lambda: stepper.step(batch, lambda piece: model(piece).square().mean(), split=1)
        )

    few, many = run(8), run(64)
    return [
        ["per micro-batch, captured", f"{(many - few) / 56:.1f}"],
        ["per window of 8", f"{few:.0f}"],
    ]


def watch_rows() -> list[list[str]]:
    """Time the plain loop on the large model, watched and not."""
    model = made(GPT)
    way = WAYS[0].make(model, loss_of)
    batch = torch.randint(0, 32768, (SAMPLES, 2049), device="cuda")
    ratios = []
    for _ in range(12):  # side by side, because the machine's speed drifts
        alone = milliseconds(lambda: way(batch), repeats=3, warm_up=2)
        with instep.watch():
            watched = milliseconds(lambda: way(batch), repeats=3, warm_up=2)
        ratios.append(watched / alone)
    low, middle, high = statistics.quantiles(ratios, n=4)
    return [["watched / unwatched", f"{middle:.3f} ({low:.3f} to {high:.3f})"]]


def small_gpt() -> nn.Module:
    """Return a model of about 10 M parameters, where launches dominate."""
    return GPT(width=256, layers=8, words=8192, length=512)


def restoration() -> nn.Module:
    """Return a convolutional super-resolution net."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.GELU()]
    for _ in range(14):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.GELU()]
    return nn.Sequential(*layers, nn.Conv2d(64, 12, 3, padding=1), nn.PixelShuffle(2))


def restoration_loss(model: nn.Module, image: Tensor) -> Tensor:
    """Compare the restored patch with itself before it was made smaller."""
    small = functional.avg_pool2d(image, 2)
    restored: Tensor = model(small)
    return (restored.float() - image).abs().mean()


def main() -> None:
    """Run what was asked for and print it; `--write` puts it into benchmarks/README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="sections to run")
    parser.add_argument("--ways", nargs="*", default=[], type=int, help="numbers of ways to run")
    args = parser.parse_args()

    def ways(*widths: int, pieces: Sequence[int] = ()) -> list[Way]:
        every = [*WAYS, *map(abreast, widths), *map(larger, pieces), unsplit(SAMPLES)]
        return [way for number, way in enumerate(every) if not args.ways or number in args.ways]

    # As wide as the window's memory stays near that of the plain loop; small models have room.
    widths = {512: (4, 8), 1024: (2,), 2048: (2,)}
    pieces = {512: (2, 4), 1024: (2,), 2048: ()}
    words = {n: torch.randint(0, 32768, (SAMPLES, n + 1), device="cuda") for n in widths}
    few = torch.randint(0, 8192, (SAMPLES, 257), device="cuda")
    patches = torch.rand(SAMPLES, 3, 128, 128, device="cuda")
    windows = ["way", "ms per window", "times the plain loop", "peak GiB"]

    def large(tokens: int) -> list[list[str]]:
        every = ways(*widths[tokens], pieces=pieces[tokens])
        return window_rows(GPT, words[tokens], loss_of, every)

    sections: dict[str, tuple[list[str], Callable[[], list[list[str]]]]] = {
        "close": (["close of 742 M parameters, clipped", "ms", "of the floor"], close_rows),
        **{f"gpt-{n}": (windows, partial(large, n)) for n in words},
        "where": (
            ["ms of a window, by tokens per micro-batch", *(f"{n:,}" for n in words)],
            lambda: where_rows(list(words.values())),
        ),
        "small": (windows, lambda: window_rows(small_gpt, few, loss_of, ways(8))),
        "patches": (
            windows,
            lambda: window_rows(restoration, patches, restoration_loss, ways(8)),
        ),
        "products": (
            ["rows of a product for a weight of 6144 × 2048", "µs", "µs per 512 rows"],
            product_rows,
        ),
        "overhead": (["host, function style", "µs"], overhead_rows),
        "watch": (["the plain loop on the 742 M GPT", "ratio"], watch_rows),
    }
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}, Python {platform.python_version()}")
    for name, (heads, run) in sections.items():
        if args.only and name not in args.only:
            continue
        text = table(heads, run())
        print(f"\n## {name}\n{text}", flush=True)
        if args.write:
            write_section(f"gpu-{name}", text)


if __name__ == "__main__":
    main()
