"""What the model is fitted to: collectives and windows on 1 to 8 gloo ranks of one machine.

Ranks share the cores of the machine, so that what a rank computes and what gloo copies for it come
out of the same time: that of the cores, summed over all ranks. It stays nearly the same when
something else runs on the machine, and the model is fitted to it. The fastest time on the wall does
not, and is kept beside it.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DATA = Path(__file__).parent / "data" / "gloo.json"
RANKS = (1, 2, 4, 8)
SIZES = tuple(4**power * 1024 for power in range(2, 8))
"""Bytes of a collective: 16 KiB to 16 MiB."""
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")
SYNCS = ("window", "micro-batch")
KINDS = ("ddp", "fsdp")
REPEATS = 11


@dataclass(frozen=True)
class Shape:
    """A stack of square layers, and the micro-batches of its windows."""

    width: int
    layers: int
    rows: int
    micro_batches: int

    def model(self) -> nn.Sequential:
        """Return the model."""
        layers = (nn.Linear(self.width, self.width, bias=False) for _ in range(self.layers))
        return nn.Sequential(*layers)


USUAL = Shape(512, 4, 256, 4)
SECOND, SECOND_RANKS = Shape(384, 6, 128, 3), (1, 3, 6)
"""Another model on other numbers of ranks: nothing is fitted to it, but a choice was made by it."""
FRESH, FRESH_RANKS = Shape(480, 5, 192, 5), (1, 5, 6)
"""One more, of which no choice in the model knows."""
# Their names since torch 2.13, which warns of the older ones.
_gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
_scatter = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)


def measure(rounds: int = 2) -> dict[str, Any]:
    """Measure everything several times; return the least of each, as the file keeps it."""
    found = _round()
    second, fresh = measured(SECOND, SECOND_RANKS), measured(FRESH, FRESH_RANKS)
    for _ in range(rounds - 1):
        found = least(found, _round())
        second = least(second, measured(SECOND, SECOND_RANKS))
        fresh = least(fresh, measured(FRESH, FRESH_RANKS))
    return found | {"second": second, "fresh": fresh}


def least(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return two rounds as one: what else runs on a machine can only add to a time."""
    return one | {
        key: [
            mine | {name: min(mine[name], theirs[name]) for name in ("wall", "cores")}
            for mine, theirs in zip(one[key], other[key], strict=True)
        ]
        for key in ("collectives", "windows")
    }


def _round() -> dict[str, Any]:
    found: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}",
        "cores": os.cpu_count(),
    }
    return found | measured(USUAL, RANKS, COLLECTIVES)


def measured(shape: Shape, ranks: Sequence[int], collectives: Sequence[str] = ()) -> dict[str, Any]:
    """Measure collectives, and windows of one shape, on several numbers of ranks."""
    found: dict[str, Any] = {
        "parameters": sum(p.numel() for p in shape.model().parameters()),
        "layers": shape.layers,
        "micro_batches": shape.micro_batches,
        "collectives": [],
        "windows": [],
    }
    for number in ranks:
        with tempfile.TemporaryDirectory() as folder:
            spawn(_work, (number, folder, shape, collectives), nprocs=number)
            said = json.loads(Path(folder, "found.json").read_text(encoding="utf-8"))
        for key in ("collectives", "windows"):
            found[key] += said[key]
    return found


def _work(rank: int, ranks: int, folder: str, shape: Shape, collectives: Sequence[str]) -> None:
    torch.set_num_threads(1)
    where = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=ranks)
    found = {"collectives": _collectives(ranks, collectives), "windows": _windows(ranks, shape)}
    distributed.barrier()
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found), encoding="utf-8")
    distributed.barrier()
    os._exit(0)  # a model that outlives its group hangs when it is freed


def _collectives(ranks: int, names: Sequence[str]) -> list[dict[str, Any]]:
    found = [{"name": "nothing", "ranks": ranks, "bytes": 0, **_timed(lambda: None)}]
    for name in names if ranks > 1 else ():
        for size in SIZES:
            whole = torch.ones(size // 4)
            part = torch.ones(size // 4 // ranks)
            calls: dict[str, Callable[[], object]] = {
                "all-reduce": lambda whole=whole: distributed.all_reduce(whole),  # type: ignore[misc]
                "all-gather": lambda whole=whole, part=part: _gather(whole, part),  # type: ignore[misc]
                "reduce-scatter": lambda whole=whole, part=part: _scatter(part, whole),  # type: ignore[misc]
            }
            found.append({"name": name, "ranks": ranks, "bytes": size, **_timed(calls[name])})
    return found


def _windows(ranks: int, shape: Shape) -> list[dict[str, Any]]:
    found = []
    for kind in KINDS:
        for sync in SYNCS:
            model, run = window_of(shape, kind, sync)
            found.append({"kind": kind, "sync": sync, "ranks": ranks, **_timed(run)})
            del model, run
            gc.collect()
    return found


def window_of(shape: Shape, kind: str, sync: str) -> tuple[nn.Module, Callable[[], None]]:
    """Return a model and what makes one window of it, without the update."""
    plain = shape.model()
    x = torch.randn(shape.rows, shape.width)
    model: Any
    if kind == "fsdp":
        for layer in plain:
            fully_shard(layer)
        model = fully_shard(plain)
    else:
        model = DistributedDataParallel(plain, bucket_cap_mb=25)

    def run() -> None:
        for micro in range(shape.micro_batches):
            is_last = micro == shape.micro_batches - 1
            is_quiet = sync == "window" and not is_last
            context: AbstractContextManager[object] = nullcontext()
            if kind == "fsdp":
                model.set_requires_gradient_sync(not is_quiet)
            elif is_quiet:
                context = model.no_sync()
            with context:
                model(x).square().mean().backward()
        model.zero_grad()

    return model, run


def _timed(run: Callable[[], object], repeats: int = REPEATS) -> dict[str, float]:
    """Return the fastest of several repeats on the wall, and the time of the cores of all ranks.

    Both hold two barriers, which are measured by themselves as "nothing".
    """
    run()
    walls, spent = [], []
    for _ in range(repeats):
        distributed.barrier()
        wall, core = time.perf_counter(), time.process_time()
        run()
        distributed.barrier()
        walls.append(time.perf_counter() - wall)
        spent.append(time.process_time() - core)
    total = torch.tensor(sorted(spent)[len(spent) // 4], dtype=torch.float64)
    distributed.all_reduce(total)
    return {"wall": round(min(walls), 7), "cores": round(float(total), 7)}
