"""Super-resolution from patches: the loops that are compared, and how each shows a picture."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

import instep
from examples.tour.loops import Batch

PATCH = 24
"""Pixels of the small image along each side."""
FACTOR = 2


class Sharpen(nn.Module):
    """Bicubic ×2, and what four convolutions add to it."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        last = nn.Conv2d(channels, 3 * FACTOR * FACTOR, 3, padding=1)
        self.body = nn.Sequential(
            nn.Conv2d(3, channels, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            last,
            nn.PixelShuffle(FACTOR),
        )
        with torch.no_grad():
            last.weight.mul_(0.3)
            last.bias.zero_()  # type: ignore[union-attr] # nn.Conv2d has one unless told otherwise

    def forward(self, x: Tensor) -> Tensor:
        """Return an image of twice the size."""
        added: Tensor = self.body(2 * x - 0.7)
        return bicubic(x) + 0.1 * added


def bicubic(x: Tensor) -> Tensor:
    """Return an image of twice the size, without having learnt anything."""
    return F.interpolate(x, scale_factor=FACTOR, mode="bicubic")


def loss_of(model: nn.Module, piece: Batch) -> Tensor:
    """Return the mean squared error."""
    return F.mse_loss(model(piece[0]), piece[1])


def independent_patches(batch: Batch) -> list[Batch]:
    """Cut full patches only, as `unfold` does: what is left at the right and below is dropped."""
    small, truth = batch
    rows = range(0, small.shape[-2] - PATCH + 1, PATCH)
    columns = range(0, small.shape[-1] - PATCH + 1, PATCH)
    return [
        (
            small[..., top : top + PATCH, left : left + PATCH],
            truth[
                ...,
                FACTOR * top : FACTOR * (top + PATCH),
                FACTOR * left : FACTOR * (left + PATCH),
            ],
        )
        for top, left in itertools.product(rows, columns)
    ]


def whole(model: nn.Module, optimizer: Optimizer, batch: Batch, updates: int) -> None:
    """Train on whole images: the reference."""
    for _ in range(updates):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


def naive(model: nn.Module, optimizer: Optimizer, batch: Batch, updates: int) -> None:
    """Add up independent patches, each with its own zero padding: to be measured, not copied."""
    patches = independent_patches(batch)
    for _ in range(updates):
        optimizer.zero_grad()
        for patch in patches:
            (loss_of(model, patch) / len(patches)).backward()
        optimizer.step()


def step_per_patch(model: nn.Module, optimizer: Optimizer, batch: Batch, updates: int) -> None:
    """Make an update for each of the same patches, in another order in every pass."""
    patches = independent_patches(batch)
    generator = torch.Generator().manual_seed(0)
    for _ in range(updates):
        for index in torch.randperm(len(patches), generator=generator).tolist():
            optimizer.zero_grad()
            loss_of(model, patches[index]).backward()
            optimizer.step()  # instep: ignore[step-per-patch] to be measured


def exact(model: nn.Module, optimizer: Optimizer, batch: Batch, updates: int) -> None:
    """Train on patches with the gradient of whole images."""
    stepper = instep.Stepper(model, optimizer)
    split = instep.Patches(PATCH)
    for _ in range(updates):
        stepper.step(batch, lambda piece: loss_of(model, piece), split=split)


@torch.no_grad()
def patch_by_patch(model: nn.Module, small: Tensor) -> Tensor:
    """Run a model over independent patches, and put what it makes side by side."""
    rows = [
        torch.cat([model(part) for part in row.split(PATCH, dim=-1)], dim=-1)
        for row in small.split(PATCH, dim=-2)
    ]
    return torch.cat(rows, dim=-2)


def with_halo(model: nn.Module, small: Tensor) -> Tensor:
    """Run a model over patches that see what is around them: equal to running it over the whole."""
    made: Tensor = instep.stitch(model, small, patch=PATCH)
    return made


def borders(sizes: tuple[int, int], width: int) -> Tensor:
    """Return which pixels of the truth lie this near to where two patches meet."""
    near = torch.zeros(sizes, dtype=torch.bool)
    for place in _cuts(sizes[0]):
        near[place - width : place + width] = True
    for place in _cuts(sizes[1]):
        near[:, place - width : place + width] = True
    return near


def _cuts(size: int) -> Iterator[int]:
    return iter(range(FACTOR * PATCH, size, FACTOR * PATCH))
