"""The loops that the tour compares. Each trains one epoch over micro-batches, `n` per update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

import instep

Batch = tuple[Tensor, Tensor]
"""Inputs and targets; a target of IGNORED does not count."""

IGNORED = -100


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy over the targets that are not ignored."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)


def counted(targets: Tensor) -> Tensor:
    """Return how many targets the mean is over."""
    return (targets != IGNORED).sum()


def windows_joined(batches: Sequence[Batch], n: int) -> Iterator[Batch]:
    """Join every n micro-batches, and what is left at the end, into the batch they stand for."""
    for start in range(0, len(batches), n):
        inputs, targets = zip(*batches[start : start + n], strict=True)
        yield torch.cat(inputs), torch.cat(targets)


def whole_batch(model: nn.Module, optimizer: Optimizer, batches: Sequence[Batch], n: int) -> None:
    """Train as if memory did not matter: the reference for all others."""
    for x, y in windows_joined(batches, n):
        loss = mean_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def textbook(model: nn.Module, optimizer: Optimizer, batches: Sequence[Batch], n: int) -> None:
    """Accumulate gradients as most tutorials show it: here to be measured, not to be copied."""
    for i, (x, y) in enumerate(batches):
        loss = mean_loss(model(x), y)
        (loss / n).backward()  # instep: ignore[mean-of-means] to be measured
        if (i + 1) % n == 0:
            optimizer.step()  # instep: ignore[leftover-window] to be measured
            optimizer.zero_grad()


def tensor_items(
    model: nn.Module, stepper: instep.Stepper, batches: Sequence[Batch], n: int
) -> None:
    """Accumulate in windows; the counts stay tensors, so a device is not waited for."""
    for window in stepper.windows(batches, size=n):
        for x, y in window:
            loss = mean_loss(model(x), y)
            window.backward(loss, items=counted(y))


def int_items(model: nn.Module, stepper: instep.Stepper, batches: Sequence[Batch], n: int) -> None:
    """Accumulate in windows, with the counts as plain numbers."""
    for window in stepper.windows(batches, size=n):
        for x, y in window:
            loss = mean_loss(model(x), y)
            window.backward(loss, items=int(counted(y)))


def function_style(
    model: nn.Module, stepper: instep.Stepper, batches: Sequence[Batch], n: int
) -> None:
    """Hand over the joined batch and let the engine cut it, into other pieces than it came in."""

    def loss_and_items(piece: Batch) -> tuple[Tensor, Tensor]:
        x, y = piece
        return mean_loss(model(x), y), counted(y)

    for batch in windows_joined(batches, n):
        stepper.step(batch, loss_and_items, split=3)
