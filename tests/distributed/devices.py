"""Cases for ranks on a device: two processes on one GPU over gloo, and the same on the CPU.

Each is a function of a rank and a device. What it returns are numbers, so that they travel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import instep
from tests.distributed.crew import Crew
from tests.distributed.kit import dealt, error, values, whole
from tests.engine.kit import EXACT, Batch, blank, counted, mean_loss, mlp, train_whole

KINDS = ["ddp", "plain", "fsdp"]
SIZES = [[3, 5, 1, 4, 2, 2], [2, 6, 3]]
"""Micro-batches of each rank: the second one has no part in the last window of three."""


def collectives_problem(rank: int, world: int, device: str) -> str:
    """Say what this device's gloo does not have of what FSDP2 needs; empty if it has all."""
    mine = torch.ones(world, device=device)
    try:
        distributed.all_gather_into_tensor(torch.empty(world * world, device=device), mine)
        distributed.reduce_scatter_tensor(torch.empty(1, device=device), mine)
    except (RuntimeError, NotImplementedError, ValueError) as raised:
        return str(raised).splitlines()[0]
    return ""


def spread_on(plain: nn.Module, kind: str, device: str, world: int) -> nn.Module:
    """Move a model to the device, and wrap it for all ranks."""
    plain.to(device)
    if kind == "ddp":
        return DistributedDataParallel(plain)
    if kind == "fsdp":
        mesh = init_device_mesh(torch.device(device).type, (world,))
        for layer in plain:
            if list(layer.parameters(recurse=False)):
                fully_shard(layer, mesh=mesh)
        return fully_shard(plain, mesh=mesh)
    return plain


def moved(data: list[Batch], device: str) -> list[Batch]:
    return [(x.to(device), y.to(device)) for x, y in data]


def stepper_of(model: nn.Module, **options: Any) -> instep.Stepper:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return instep.Stepper(model, optimizer, group=distributed.group.WORLD, **options)


# -- updates -------------------------------------------------------------------------------------


def data_of(rank: int) -> list[Batch]:
    """Uneven micro-batches; nothing in the second window counts, on any rank."""
    data = dealt(SIZES)[rank]
    return [blank(batch) if index in (2, 3) else batch for index, batch in enumerate(data)]


def train(rank: int, world: int, kind: str, device: str) -> Any:
    """Uneven windows with clipping, one of them empty, counts on the device."""
    plain = mlp()
    model = spread_on(plain, kind, device, world)
    stepper = stepper_of(model, clip_norm=0.1)
    updates = []
    for window in stepper.windows(moved(data_of(rank), device), size=2):
        for x, y in window:
            items = (y != -100).sum() if rank == 0 else counted(y)
            # A mean over nothing is 0/0; the sum is 0, and counts for nothing.
            loss = F.cross_entropy(model(x), y, ignore_index=-100, reduction="sum")
            window.backward(loss, items=items, reduction="sum")
        updates += window.updates
    # The loss of an empty window is nan, which equals nothing.
    said = [(update.items, update.skipped, update.grad_norm) for update in updates]
    return said, values(plain), [str(p.device) for p in plain.parameters()]


def check_updates(crew: Crew, kind: str, device: str) -> None:
    found = crew.run(train, kind, device)
    assert found[0][:2] == found[1][:2]
    updates, numbers, devices = found[0]
    assert all(each.startswith(torch.device(device).type) for each in devices)
    assert [update[0] for update in updates] == [16.0, 0.0, 4.0]
    assert [update[1] for update in updates] == [None, "empty", None]
    both = [data_of(rank) for rank in range(2)]
    windows = [[b for data in both for b in data[at : at + 2]] for at in (0, 2, 4)]
    expected = train_whole(mlp(), windows, torch.optim.AdamW, clip_norm=0.1)
    assert error(numbers, expected) < 1000 * EXACT


# -- loss scale ----------------------------------------------------------------------------------


def overflow(rank: int, world: int, kind: str, device: str) -> Any:
    """One rank's gradient is not finite in the second window: no rank updates, all scales fall."""
    plain = mlp(dtype=torch.float32)
    model = spread_on(plain, kind, device, world)
    scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=2.0**10)
    stepper = stepper_of(model, scaler=scaler, precision="fp16")
    steps = []
    for window in stepper.windows(moved(dealt(SIZES)[rank], device), size=2):
        before = values(plain)
        for x, y in window:
            loss = mean_loss(model, x.float(), y)
            if rank == 1 and window.index == 1:
                loss = loss * float("inf")
            window.backward(loss, items=counted(y))
        steps.append((window.skipped, scaler.get_scale(), before != values(plain)))
    return steps, values(plain)


def check_overflow(crew: Crew, kind: str, device: str) -> None:
    found = crew.run(overflow, kind, device)
    assert found[0] == found[1]
    skipped = [(each, has_moved) for each, _, has_moved in found[0][0]]
    assert skipped == [(None, True), ("non-finite", False), (None, True)]
    assert [scale for _, scale, _ in found[0][0]] == [2.0**10, 2.0**9, 2.0**9]


# -- memory --------------------------------------------------------------------------------------


def take_too_much(device: str) -> None:
    """Run out of memory, as an allocator says it."""
    torch.empty(2**50, dtype=torch.uint8, device=device)


def out_of_memory(rank: int, world: int, kind: str, device: str) -> Any:
    """Rank 1 runs out of memory in a loop, and everybody goes on with another one."""
    plain = mlp()
    model = spread_on(plain, kind, device, world)
    stepper = stepper_of(model)
    data = moved(dealt(SIZES)[rank], device)
    said, is_real = "", False
    try:
        with stepper.windows(data, size=2) as windows:
            for window in windows:
                for x, y in window:
                    if rank == 1 and window.index == 1:
                        take_too_much(device)
                    window.backward(mean_loss(model, x, y), items=len(y))
    except RuntimeError as raised:
        said = f"{type(raised).__name__}: {str(raised).splitlines()[0]}"
        is_real = isinstance(raised, torch.cuda.OutOfMemoryError)
    before = values(plain)
    for window in stepper.windows(data, size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
    return said, is_real, before, values(plain)


def check_out_of_memory(crew: Crew, kind: str, device: str) -> None:
    first, second = crew.run(out_of_memory, kind, device)
    assert first[0].startswith("WindowError: rank 1 gave up")
    assert "OutOfMemoryError" in second[0] or "DefaultCPUAllocator" in second[0]
    assert second[1] == (torch.device(device).type == "cuda")
    assert first[2:] == second[2:]
    assert first[2] != first[3]


def replayed(rank: int, world: int, kind: str, device: str) -> Any:
    """A batch whose larger pieces do not fit on rank 1, which replays its window by itself."""
    plain = mlp()
    model = spread_on(plain, kind, device, world)
    stepper = stepper_of(model)
    pieces = []

    def loss_of(batch: Batch) -> Any:
        pieces.append(len(batch[1]))
        if rank == 1 and len(batch[1]) > 3:
            take_too_much(device)
        return mean_loss(model, *batch), len(batch[1])

    (batch,) = moved(dealt([[7], [8]])[rank], device)
    update = stepper.step(batch, loss_of, split=instep.Micro("auto"))
    return (update.loss, update.items), values(plain), max(pieces), min(pieces)


def check_replayed(crew: Crew, kind: str, device: str) -> None:
    found = crew.run(replayed, kind, device)
    assert found[0][:2] == found[1][:2]
    assert found[0][0][1] == 15.0
    assert found[1][2] > 3 >= found[1][3]
    both = [batch for data in dealt([[7], [8]]) for batch in data]
    expected = train_whole(mlp(), [both], torch.optim.AdamW)
    assert error(found[0][1], expected) < 1000 * EXACT


# -- checkpoints ---------------------------------------------------------------------------------


class Job:
    """A job with random numbers on the device, of its own on each rank."""

    def __init__(self, rank: int, world: int, kind: str, device: str, *, seed: int) -> None:
        self.plain = mlp(seed)
        self.model = spread_on(self.plain, kind, device, world)
        self.stepper = stepper_of(self.model, clip_norm=1.0)
        self.data = moved(dealt(SIZES)[rank], device)
        torch.manual_seed(100 * seed + rank)

    def epoch(self, save_at: tuple[int, int] | None = None, path: str = "", **how: Any) -> None:
        for window in self.stepper.windows(self.data, size=2):
            for index, (x, y) in enumerate(window):
                loss = mean_loss(self.model, F.dropout(x, 0.2), y)
                window.backward(loss, items=counted(y))
                if save_at == (window.index, index):
                    self.stepper.save(path, **how)
            if save_at == (window.index, -1):
                self.stepper.save(path, **how)

    def found(self, device: str) -> Any:
        (optimizer,) = self.stepper.optimizers["optimizer"]
        state = optimizer.state_dict()["state"].values()
        moments = [whole(v).flatten().tolist() for entry in state for v in entry.values()]
        return values(self.plain), moments, torch.rand(1, device=device).item()


def saved(rank: int, world: int, kind: str, device: str, path: str, middle: bool) -> Any:
    """Save while all ranks run, in the background too, and go on; then the same from the file."""
    job = Job(rank, world, kind, device, seed=0)
    # Batch 0 of window 1 is in every rank's part.
    job.epoch((1, 0) if middle else (1, -1), path, wait=middle)
    job.epoch()
    found = job.found(device)
    job.stepper.save(f"{path}-2")  # waits for the first
    again = Job(rank, world, kind, device, seed=7)
    loaded = again.stepper.load(path)
    again.epoch()
    again.epoch()
    return found == again.found(device), loaded.updates, found[0]


def check_saved(crew: Crew, kind: str, device: str, path: str) -> None:
    # A sharded model is saved between windows.
    for middle in (False, True) if kind != "fsdp" else (False,):
        found = crew.run(saved, kind, device, f"{path}-{middle}", middle)
        assert [each[:2] for each in found] == [(True, 1 if middle else 2)] * 2
        assert found[0][2] == found[1][2]
