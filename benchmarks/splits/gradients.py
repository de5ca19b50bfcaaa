"""Gradients over patches against the whole image's, and where 25 updates with them lead."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import instep
from benchmarks.splits import peers
from benchmarks.splits.networks import EXACT
from instep.engine.reference import relative_error
from instep.errors import SplitError

Batch = tuple[Tensor, Tensor]
Gradients = list[Tensor]
EXACTLY = 1e-10


@dataclass(frozen=True)
class Case:
    """A network and the images it is tried on, always from the same start."""

    name: str
    shape: tuple[int, ...]
    patch: int
    make: Callable[[], nn.Module]

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make().double()

    def batch(self) -> Batch:
        generator = torch.Generator().manual_seed(1)
        image = torch.randn(self.shape, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            made = self.model()(image)
        return image, torch.randn(made.shape, dtype=torch.float64, generator=generator)


def cases(names: list[str] | None = None) -> list[Case]:
    return [
        Case(name, shape, patch, make)
        for name, (make, shape, patch) in EXACT.items()
        if names is None or name in names
    ]


def full_patches(batch: Batch, patch: int) -> list[peers.Patch]:
    """Full patches of all images together, as `unfold` cuts them; what is left is dropped."""
    image, target = batch
    dims = image.dim() - 2
    scale = target.shape[-1] // image.shape[-1]
    starts = [range(0, n - patch + 1, patch) for n in image.shape[-dims:]]
    return [
        (image[_window(corner, patch, 1)], target[_window(corner, patch, scale)])
        for corner in itertools.product(*starts)
    ]


def _window(corner: tuple[int, ...], patch: int, scale: int) -> tuple[Any, ...]:
    return (..., *(slice(scale * start, scale * (start + patch)) for start in corner))


def gradient(model: nn.Module, run: Callable[[nn.Module], None]) -> Gradients:
    """The gradient that `run` leaves in a model."""
    model.zero_grad()
    run(model)
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def loss_of(model: nn.Module, piece: Batch) -> Tensor:
    loss: Tensor = (model(piece[0]) - piece[1]).square().mean()
    return loss


def split_gradient(case: Case, split: instep.Patches | None) -> Gradients:
    """The gradient of one `stepper.step`, whose optimizer does not move."""
    model, batch = case.model(), case.batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    stepper = instep.Stepper(model, optimizer, keep_grads=True)
    return gradient(model, lambda m: _step(stepper, m, batch, split))


def _step(
    stepper: instep.Stepper, model: nn.Module, batch: Batch, split: instep.Patches | None
) -> None:
    stepper.step(batch, lambda piece: loss_of(model, piece), split=split)


def errors(case: Case) -> dict[str, float | str]:
    """The relative error of each way to cut, or why there is none."""
    model, batch = case.model(), case.batch()
    # By hand, not by the stepper: the reference is what is compared to.
    whole = gradient(model, lambda m: loss_of(m, batch).backward())
    found: dict[str, float | str] = {
        "Patches": relative_error(split_gradient(case, instep.Patches(case.patch)), whole)
    }
    try:
        independent = split_gradient(case, instep.Patches(case.patch, halo=0))
        found["halo=0"] = relative_error(independent, whole)
    except SplitError:
        found["halo=0"] = "refused"
    found["naive"] = _accumulated(case, full_patches(batch, case.patch), whole)
    for package, cut in (("monai", peers.monai), ("torchio", peers.torchio)):
        found[package] = "not installed"
        if peers.installed(package):
            found[package] = _accumulated(case, list(cut(*batch, case.patch)), whole)
    return found


def _accumulated(case: Case, patches: list[peers.Patch], whole: Gradients) -> float:
    found = gradient(case.model(), lambda m: peers.accumulate(m, patches))
    return relative_error(found, whole)


def drift(case: Case, updates: int) -> tuple[float, float]:
    """How far naive and exact patches end from the whole image's run, per distance travelled."""
    batch = case.batch()
    start = _weights(case.model())
    whole = _trained(case, [batch], updates)
    naive = _trained(case, full_patches(batch, case.patch), updates)
    exact = _exactly(case, updates)
    travelled = (whole - start).norm()
    return float((naive - whole).norm() / travelled), float((exact - whole).norm() / travelled)


def _trained(case: Case, patches: list[peers.Patch], updates: int) -> Tensor:
    model = case.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(updates):
        optimizer.zero_grad()
        peers.accumulate(model, patches)
        optimizer.step()
    return _weights(model)


def _exactly(case: Case, updates: int) -> Tensor:
    model, batch = case.model(), case.batch()
    stepper = instep.Stepper(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    split = instep.Patches(case.patch)
    for _ in range(updates):
        _step(stepper, model, batch, split)
    return _weights(model)


def _weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()
