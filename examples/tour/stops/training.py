"""A small network on real data, trained by the textbook loop, by the engine and in one piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import instep
from examples.tour import digits, loops, picture
from examples.tour.digits import Digits
from examples.tour.loops import Batch
from examples.tour.show import progress, table
from examples.tour.stop import Seen, TourError

WINDOW = 6
EPOCHS = 40
EXACT = 1e-9
"""Rounding differs between the runs and training amplifies it, over hundreds of updates."""
VISIBLE = 1e-2

Epoch = Callable[[list[Batch]], None]
Way = Callable[[nn.Module, Optimizer], Epoch]

REFERENCE, TEXTBOOK, ENGINE = "large batch", "textbook loop", "instep"


@dataclass(slots=True)
class Run:
    """What one training run did, epoch by epoch."""

    losses: list[float] = field(default_factory=list)
    parameters: list[Tensor] = field(default_factory=list)
    accuracy: float = 0.0

    def distances(self, reference: Run) -> list[float]:
        """Return the relative distance of the parameters from those of another run."""
        pairs = zip(self.parameters, reference.parameters, strict=True)
        return [float((ours - theirs).norm() / theirs.norm()) for ours, theirs in pairs]


def by_large_batch(model: nn.Module, optimizer: Optimizer) -> Epoch:
    return lambda batches: loops.whole_batch(model, optimizer, batches, WINDOW)


def by_textbook(model: nn.Module, optimizer: Optimizer) -> Epoch:
    return lambda batches: loops.textbook(model, optimizer, batches, WINDOW)


def by_engine(model: nn.Module, optimizer: Optimizer) -> Epoch:
    stepper = instep.Stepper(model, optimizer)
    return lambda batches: loops.tensor_items(model, stepper, batches, WINDOW)


def trained(name: str, way: Way, data: Digits) -> Run:
    """Train from the same start, on the same micro-batches in the same order, as all others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).double()
    train_epoch = way(model, SGD(model.parameters(), lr=0.1, momentum=0.9))
    images, labels = data.labelled()
    run = Run()
    for epoch in progress(range(EPOCHS), f"{name:<14}"):
        train_epoch(data.epoch(epoch))
        with torch.no_grad():
            run.losses.append(float(loops.mean_loss(model(images), labels)))
        run.parameters.append(nn.utils.parameters_to_vector(model.parameters()).detach().clone())
    images, labels = data.test
    with torch.no_grad():
        run.accuracy = float((model(images).argmax(1) == labels).double().mean())
    return run


def stop(out: Path) -> Seen:
    """Train three times, print how each ended, and save the picture."""
    data = digits.load()
    _describe(data)
    ways: dict[str, Way] = {REFERENCE: by_large_batch, TEXTBOOK: by_textbook, ENGINE: by_engine}
    runs = {name: trained(name, way, data) for name, way in ways.items()}
    distances = {name: runs[name].distances(runs[REFERENCE]) for name in (TEXTBOOK, ENGINE)}
    rows = [
        [
            name,
            f"{run.losses[-1]:.4f}",
            f"{run.accuracy:.1%}",
            f"{distances[name][-1]:.1e}" if name in distances else "",
        ]
        for name, run in runs.items()
    ]
    print()
    print(table(["", "training loss", "test accuracy", "distance from large batch"], rows))
    seen = _seen(distances, out / "loss_curves.png")
    losses = {name: run.losses for name, run in runs.items()}
    picture.draw(seen.pictures[0], losses=losses, distances=distances, reference=REFERENCE)
    return seen


def _describe(data: Digits) -> None:
    counts = [int(loops.counted(labels)) for _, labels in data.batches]
    sizes = [len(images) for images, _ in data.batches]
    print(
        f"Handwritten digits: {len(counts)} micro-batches of {min(sizes)} to {max(sizes)} images, "
        f"{min(counts)} to {max(counts)} of them labelled.\n"
        f"{WINDOW} micro-batches per update, {len(counts) % WINDOW} in the last window, "
        f"{EPOCHS} epochs. The same two loops as before:\n"
        "what the textbook loop has left of the last window leaks into the next epoch.\n"
    )


def _seen(distances: dict[str, list[float]], path: Path) -> Seen:
    """Check what the picture's title says before it is drawn."""
    textbook, engine = distances[TEXTBOOK][-1], distances[ENGINE][-1]
    if engine > EXACT:
        raise TourError(f"the engine ended {engine:.1e} from the large-batch run")
    if textbook < VISIBLE:
        raise TourError(f"the textbook loop ended only {textbook:.1e} from the large-batch run")
    return Seen(
        f"After {EPOCHS} epochs the textbook loop is {textbook:.0%} away from the large-batch run, "
        f"the engine {engine:.0e}.",
        (path,),
    )
