"""The machine at hand, from what was measured on it; and how well it predicts what it was not
fitted to.

What a collective takes is a sum of messages, bytes sent and bytes copied, so that three numbers are
found by least squares of the relative error. One more, for what sharding does around a collective,
is fitted to two windows. Everything else is predicted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.scale.machines import Links, Machine, moved
from benchmarks.scale.measure import DATA, SIZES
from benchmarks.scale.windows import Job, window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.scale.machines import Collective

FITTED_RANKS, FITTED_SIZES, FITTED_SYNC = (2, 8), SIZES[1::2], "window"
"""What the numbers are fitted to; everything on 4 ranks, other sizes, all windows of DDP and those
of FSDP that are reduced per micro-batch are left for the test."""


@dataclass(frozen=True)
class Point:
    """One measurement beside its prediction, in seconds of all cores together."""

    what: str
    ranks: int
    measured: float
    predicted: float
    fitted: bool
    """It was one of those that the model was fitted to."""

    @property
    def error(self) -> float:
        """How far the prediction is off, over what was measured."""
        return self.predicted / self.measured - 1


def measurements() -> dict[str, Any]:
    """Return what was measured, from its file."""
    read: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return read


def fitted(data: Mapping[str, Any]) -> Machine:
    """Return the machine whose collectives are nearest to what was measured."""
    rows, ones = [], []
    for each in _collectives(data):
        if _is_fitted(each):
            took = each["cores"]
            rows.append([part / took for part in _parts(each)])
            ones.append(1.0)
    found = _least_squares(rows, ones)
    links = Links(found[0], found[1])
    bare = Machine(
        data["machine"],
        inside=links,
        outside=links,
        node=max(each["ranks"] for each in data["windows"]),
        copy=found[2],
        cores=data["cores"],
        has_trees=False,
        scatters=False,
    )
    return replace(bare, shard_call=_shard_call(bare, data))


def job_of(data: Mapping[str, Any], kind: str) -> Job:
    """Return the job of the measured windows; one rank alone says what its computing takes."""
    [alone] = [
        each["cores"] - _nothing(data, 1)
        for each in data["windows"]
        if (each["kind"], each["sync"], each["ranks"]) == (kind, "window", 1)
    ]
    count = data["micro_batches"]
    return Job(data["parameters"], count, alone / count, close_seconds=0.0, layers=data["layers"])


def points(data: Mapping[str, Any], machine: Machine) -> list[Point]:
    """Return everything that was measured beside what the model says."""
    found = [
        Point(
            f"{each['name']}, {_size(each['bytes'])}",
            each["ranks"],
            each["cores"],
            each["ranks"] * machine.alone(each["name"], each["bytes"], each["ranks"]),
            _is_fitted(each),
        )
        for each in _collectives(data)
    ]
    for each in data["windows"]:
        kind, ranks = each["kind"], each["ranks"]
        if ranks > 1:
            made = window(machine, job_of(data, kind), ranks, kind, each["sync"])
            spent = made.seconds * ranks / machine.contention(ranks)
            found.append(
                Point(
                    f"{kind.upper()} window, sync per {each['sync']}",
                    ranks,
                    each["cores"] - _nothing(data, ranks),
                    spent,
                    fitted=_calibrates(each),
                )
            )
    return found


def _shard_call(machine: Machine, data: Mapping[str, Any]) -> float:
    job = job_of(data, "fsdp")
    left, calls = 0.0, 0.0
    for each in data["windows"]:
        if _calibrates(each):
            ranks = each["ranks"]
            made = window(machine, job, ranks, "fsdp", each["sync"])
            alone = made.seconds / machine.contention(ranks)
            left += (each["cores"] - _nothing(data, ranks)) / ranks - alone
            reductions = job.micro_batches if each["sync"] == "micro-batch" else 1
            calls += job.layers * (2 * job.micro_batches + reductions) * machine.contention(ranks)
    return max(left / calls, 0.0)


def _calibrates(each: Mapping[str, Any]) -> bool:
    """Say whether a window is one of those that what sharding costs is fitted to."""
    return each["kind"] == "fsdp" and each["ranks"] in FITTED_RANKS and each["sync"] == FITTED_SYNC


def _parts(each: Mapping[str, Any]) -> list[float]:
    """Return what a message, a sent byte and a copied byte are multiplied by, over all ranks."""
    ranks, size = each["ranks"], each["bytes"]
    kind: Collective = "all-gather" if each["name"] == "all-gather" else "all-reduce"
    passes = 2 if kind == "all-reduce" else 1
    copies = 2 if each["name"] == "reduce-scatter" else 1
    sent = moved(kind, size, ranks)
    return [ranks * passes * (ranks - 1), ranks * sent, ranks * copies * size]


def _collectives(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the collectives without the barriers around them."""
    return [
        {**each, "cores": each["cores"] - _nothing(data, each["ranks"])}
        for each in data["collectives"]
        if each["name"] != "nothing"
    ]


def _nothing(data: Mapping[str, Any], ranks: int) -> float:
    [found] = [
        each["cores"]
        for each in data["collectives"]
        if (each["name"], each["ranks"]) == ("nothing", ranks)
    ]
    return float(found)


def _is_fitted(each: Mapping[str, Any]) -> bool:
    return each["ranks"] in FITTED_RANKS and each["bytes"] in FITTED_SIZES


def _least_squares(rows: Sequence[Sequence[float]], ones: Sequence[float]) -> list[float]:
    matrix = torch.tensor(rows, dtype=torch.float64)
    scale = matrix.norm(dim=0)  # messages and bytes have very different sizes
    target = torch.tensor(ones, dtype=torch.float64).unsqueeze(1)
    found = torch.linalg.lstsq(matrix / scale, target).solution.squeeze(1) / scale
    return [float(each) for each in found]


def _size(size: int) -> str:
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"
