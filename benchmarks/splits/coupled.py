"""Batches in pieces: gradient errors of micro-batches, of losses that couple samples, of BatchNorm.

Each case says how its loss is computed whole, in pieces as everybody would, and by instep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import instep
from benchmarks.splits.networks import EXACT
from instep.engine.reference import relative_error

SAMPLES, PIECE = 23, 4
"""A batch that the pieces do not divide."""


@dataclass(frozen=True)
class Case:
    """One model and loss; `options` are what instep's step is given beside the split."""

    name: str
    model: nn.Module
    batch: Any
    loss_fn: Callable[..., Any]
    whole: Callable[[Any], Tensor]
    options: Mapping[str, Any]


def errors(case: Case) -> tuple[float, float]:
    """Return the relative gradient errors of instep's step and of the plain mean over pieces."""
    parameters = list(case.model.parameters())
    # Buffers that a forward moves are put back, so that each way starts from the same model.
    kept = {name: value.clone() for name, value in case.model.state_dict().items()}
    expected = torch.autograd.grad(case.whole(case.batch), parameters)
    case.model.load_state_dict(kept)
    pieces = list(instep.Micro(PIECE).pieces(case.batch))
    losses = torch.stack([case.whole(piece) for piece in pieces])
    naive = torch.autograd.grad(losses.mean(), parameters)
    case.model.load_state_dict(kept)
    optimizer = torch.optim.SGD(parameters, lr=0.0)
    stepper = instep.Stepper(case.model, optimizer, keep_grads=True)
    stepper.step(case.batch, case.loss_fn, split=PIECE, **case.options)
    found = [p.grad for p in parameters]
    ours = relative_error(found, list(expected))
    case.model.zero_grad()
    case.model.load_state_dict(kept)
    return ours, relative_error(list(naive), list(expected))


def micro() -> Iterator[Case]:
    """Yield every network of the patches, on a batch of small images."""
    for name, (make, shape, _) in EXACT.items():
        torch.manual_seed(0)
        model = make().double()
        side = 12 if len(shape) == 5 else 24
        image = torch.randn(SAMPLES, shape[1], *[side] * (len(shape) - 2), dtype=torch.float64)
        target = torch.randn_like(model(image).detach())

        def loss_fn(piece: Any, model: nn.Module = model) -> Tensor:
            made: Tensor = (model(piece[0]) - piece[1]).square().mean()
            return made

        yield Case(name, model, (image, target), loss_fn, loss_fn, {})


class Towers(nn.Module):
    """Two encoders and a temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 8))
        self.right = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 8))
        self.temperature = nn.Parameter(torch.tensor(0.2))

    def encode(self, piece: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return both representations."""
        return self.left(piece[0]), self.right(piece[1])


def _normal(x: Tensor) -> Tensor:
    return functional.normalize(x, dim=1)


def contrastive(towers: Towers, left: Tensor, right: Tensor) -> Tensor:
    """InfoNCE, symmetric, with a learned temperature."""
    scores = _normal(left) @ _normal(right).t() / towers.temperature
    labels = torch.arange(len(scores))
    return (
        functional.cross_entropy(scores, labels) + functional.cross_entropy(scores.t(), labels)
    ) / 2


def triplet(_: Towers, left: Tensor, right: Tensor) -> Tensor:
    """Triplets with the hardest negative of the batch."""
    distances = torch.cdist(left, right)
    positive = distances.diagonal()
    others = distances + torch.eye(len(left), dtype=left.dtype) * 1e6
    return (positive - others.min(1).values + 1).clamp(min=0).mean()


def barlow_twins(_: Towers, left: Tensor, right: Tensor) -> Tensor:
    """The cross-correlation of both representations against the identity."""
    a, b = ((x - x.mean(0)) / (x.std(0) + 1e-6) for x in (left, right))
    correlation = a.t() @ b / len(a)
    away = (correlation - torch.eye(8, dtype=left.dtype)).square()
    return away.diagonal().sum() + 0.01 * (away.sum() - away.diagonal().sum())


LOSSES = {"InfoNCE": contrastive, "triplet": triplet, "Barlow Twins": barlow_twins}


def coupled() -> Iterator[Case]:
    """Yield the losses that compare the samples of a batch."""
    for name, loss in LOSSES.items():
        torch.manual_seed(0)
        towers = Towers().double()
        left = torch.randn(SAMPLES, 12, dtype=torch.float64)
        batch = (left, left + 0.3 * torch.randn_like(left))

        def whole(piece: Any, towers: Towers = towers, loss: Any = loss) -> Tensor:
            made: Tensor = loss(towers, *towers.encode(piece)) + 0.0 * towers.temperature
            return made

        def loss_fn(found: Any, _: Any, towers: Towers = towers, loss: Any = loss) -> Tensor:
            made: Tensor = loss(towers, *found) + 0.0 * towers.temperature
            return made

        yield Case(name, towers, batch, loss_fn, whole, {"encode": towers.encode})


class Normed(nn.Module):
    """Convolutions with BatchNorm."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for before in (3, *[8] * (layers - 1)):
            blocks += [nn.Conv2d(before, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
        self.trunk = nn.Sequential(*blocks)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Pool what the convolutions made."""
        made: Tensor = self.head(self.trunk(x).mean((2, 3)))
        return made


def normed(mode: str) -> Case:
    """Return a BatchNorm net whose pieces are normalised by this mode."""
    torch.manual_seed(0)
    model = Normed().double()
    batch = (
        torch.randn(SAMPLES, 3, 8, 8, dtype=torch.float64),
        torch.randint(0, 5, (SAMPLES,)),
    )

    def loss_fn(piece: Any) -> Tensor:
        return functional.cross_entropy(model(piece[0]), piece[1])

    return Case(mode, model, batch, loss_fn, loss_fn, {"batchnorm": mode})


def pooled() -> tuple[float, float]:
    """Return the errors of a classifier whose trunk runs over patches, and of the mean of patches.

    The trunk's features are put together from patches with halos; the head sees all of them.
    """
    torch.manual_seed(0)
    trunk = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1)
    ).double()
    head = nn.Linear(8, 5).double()
    model = nn.ModuleList([trunk, head])
    image = torch.randn(3, 3, 70, 61, dtype=torch.float64)
    labels = torch.tensor([0, 3, 1])
    parameters = list(model.parameters())

    def loss_of(features: Tensor, batch: Any) -> tuple[Tensor, int]:
        scores = head(features.relu().mean((2, 3)))
        return functional.cross_entropy(scores, batch[1]), len(labels)

    expected = torch.autograd.grad(loss_of(trunk(image), (image, labels))[0], parameters)
    patches = [
        image[..., i : i + 16, j : j + 16] for i in range(0, 70, 16) for j in range(0, 61, 16)
    ]
    losses = [loss_of(trunk(patch), (patch, labels))[0] for patch in patches]
    naive = torch.autograd.grad(torch.stack(losses).mean(), parameters)
    stepper = instep.Stepper(model, torch.optim.SGD(parameters, lr=0.0), keep_grads=True)
    stepper.step(
        (image, labels),
        loss_of,
        encode=lambda piece: trunk(piece[0]),
        split=instep.Patches(16, model=trunk),
    )
    found = [p.grad for p in parameters]
    return relative_error(found, list(expected)), relative_error(list(naive), list(expected))
