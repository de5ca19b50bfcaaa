"""What the engine's tests share: small models, ragged data, and the true large batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from instep.engine.reference import relative_error

EXACT = 1e-12
IGNORED = -100

Batch = tuple[Tensor, Tensor]


def mlp(seed: int = 0, *, inputs: int = 5, outputs: int = 3, dtype=torch.float64) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 7), nn.Tanh(), nn.Linear(7, outputs)).to(dtype)


def batches(sizes: Iterable[int], *, ignore: Sequence[int] = (), seed: int = 1) -> list[Batch]:
    """Micro-batches of these sizes; in those listed in `ignore`, every other target is ignored."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for index, size in enumerate(sizes):
        x = torch.randn(size, 5, dtype=torch.float64, generator=generator)
        y = torch.randint(0, 3, (size,), generator=generator)
        if index in ignore:
            y[::2] = IGNORED
        made.append((x, y))
    return made


def blank(batch: Batch) -> Batch:
    """The same micro-batch with every target ignored."""
    return batch[0], torch.full_like(batch[1], IGNORED)


def counted(y: Tensor) -> int:
    return int((y != IGNORED).sum())


def mean_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, ignore_index=IGNORED)


def grouped(data: Sequence[Batch], size: int) -> list[list[Batch]]:
    return [list(data[i : i + size]) for i in range(0, len(data), size)]


def train_whole(
    model: nn.Module,
    windows: Iterable[Sequence[Batch]],
    make: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    lr: float = 0.1,
) -> nn.Module:
    """The reference: one plain PyTorch update per window, on the concatenated items."""
    model = copy.deepcopy(model)
    optimizer = make(model.parameters(), lr=lr)
    for window in windows:
        x = torch.cat([x for x, _ in window])
        y = torch.cat([y for _, y in window])
        if not counted(y):
            continue
        optimizer.zero_grad()
        mean_loss(model, x, y).backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        if clip_value is not None:
            nn.utils.clip_grad_value_(model.parameters(), clip_value)
        optimizer.step()
    return model


def update_error(start: nn.Module, found: nn.Module, expected: nn.Module) -> float:
    """Relative error of the whole update, not of the parameters, which would hide it."""
    moved = [p - s for p, s in zip(found.parameters(), start.parameters(), strict=True)]
    true = [p - s for p, s in zip(expected.parameters(), start.parameters(), strict=True)]
    return relative_error(moved, true)


def assert_bit_identical(left: nn.Module, right: nn.Module) -> None:
    for (name, one), other in zip(
        left.state_dict().items(), right.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other), name


def pretend_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make CPU tensors count as being on a device: never read before the close."""
    monkeypatch.setattr("instep.engine.checks.on_host", lambda tensor: False)
    monkeypatch.setattr("instep.engine.lane.on_host", lambda tensor: False)
