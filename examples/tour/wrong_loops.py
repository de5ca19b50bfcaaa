"""Three loops that run, train something, and are wrong; and the whole batches to hold them to.

They are kept as text, because the tour writes them to files, which it has checked and mended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from examples.tour.loops import Batch

MICRO_BATCHES = 4
PATCH = 8

PLAIN = """\
import torch.nn.functional as F


def train(model, optimizer, loader):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""

PATCHES = f"""\
import torch.nn.functional as F


def train(model, optimizer, loader):
    for image, target in loader:
        for patch, part in zip(image.split({PATCH}, -1), target.split({PATCH}, -1)):
            optimizer.zero_grad()
            loss = F.mse_loss(model(patch), part)
            loss.backward()
            optimizer.step()
"""

AMP = f"""\
import torch
import torch.nn.functional as F


def train(model, optimizer, loader, device="cuda"):
    scaler = torch.amp.GradScaler(device)
    for i, (x, y) in enumerate(loader):
        with torch.autocast(device, dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if (i + 1) % {MICRO_BATCHES} == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
"""


Train = Callable[..., None]
"""Called with a model, its optimizer, the batches and the case's options."""


@dataclass(frozen=True, slots=True)
class Case:
    """A loop as text, what it trains, and what it should do."""

    says: str
    """What the loop is meant to do, in a few words."""
    source: str
    model: Callable[[], nn.Module]
    batches: list[Batch]
    loss: Callable[[Tensor, Tensor], Tensor]
    size: int = 1
    """Batches of one update."""
    clip: float = float("inf")
    options: Mapping[str, str] = field(default_factory=dict)

    def update(self, train: Train) -> Tensor:
        """Return what an epoch adds to the parameters; float64, which autocast leaves alone."""
        torch.manual_seed(0)
        model = self.model().double()
        start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        train(model, SGD(model.parameters(), lr=0.1), self.batches, **self.options)
        return nn.utils.parameters_to_vector(model.parameters()).detach() - start

    def whole(
        self, model: nn.Module, optimizer: Optimizer, batches: Sequence[Batch], **_: str
    ) -> None:
        """Train on whole batches, as if memory did not matter."""
        for first in range(0, len(batches), self.size):
            inputs, targets = zip(*batches[first : first + self.size], strict=True)
            optimizer.zero_grad()
            self.loss(model(torch.cat(inputs)), torch.cat(targets)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), self.clip)
            optimizer.step()


def classifier() -> nn.Module:
    return nn.Linear(5, 3)


def pixelwise() -> nn.Module:
    """Make a model that sees one pixel at a time: patches of its input are then really pieces."""
    return nn.Sequential(nn.Conv2d(1, 4, 1), nn.Tanh(), nn.Conv2d(4, 1, 1))


def cases() -> dict[str, Case]:
    """Return the loops by the name of their file."""
    draw = torch.Generator().manual_seed(0)

    def vectors(count: int) -> list[Batch]:
        inputs = [torch.randn(8, 5, generator=draw).double() for _ in range(count)]
        return [(x, torch.randint(3, (8,), generator=draw)) for x in inputs]

    def images(count: int) -> list[Batch]:
        drawn = [torch.randn(2, 1, 4, 3 * PATCH, generator=draw).double() for _ in range(count)]
        return [(image, image.sin() + 1) for image in drawn]

    return {
        "plain.py": Case("an update per batch", PLAIN, classifier, vectors(10), F.cross_entropy),
        "patches.py": Case(
            "an update per image, cut into patches", PATCHES, pixelwise, images(4), F.mse_loss
        ),
        "amp.py": Case(
            f"an update per {MICRO_BATCHES} micro-batches, with AMP and clipping",
            AMP,
            classifier,
            vectors(10),
            F.cross_entropy,
            size=MICRO_BATCHES,
            clip=1.0,
            options={"device": "cpu"},
        ),
    }
