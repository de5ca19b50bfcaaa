"""Patches and stitched outputs on a CUDA device, against the whole image's, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import instep
from benchmarks.splits.networks import EXACT
from instep.engine.reference import relative_error

DEVICE = "cuda"


def gradient(
    model: nn.Module, batch: tuple[Tensor, Tensor], split: instep.Patches | None
) -> tuple[list[Tensor], float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    stepper = instep.Stepper(model, optimizer, keep_grads=True)
    model.zero_grad()
    update = stepper.step(
        batch, lambda piece: (model(piece[0]) - piece[1]).square().mean(), split=split
    )
    return [p.grad.clone() for p in model.parameters() if p.grad is not None], update.loss


@pytest.mark.parametrize("name", EXACT)
def test_the_gradient_over_patches_is_the_whole_images(name: str) -> None:
    make, shape, patch = EXACT[name]
    torch.manual_seed(0)
    model = make().to(DEVICE, torch.float64)
    image = torch.randn(shape, dtype=torch.float64, device=DEVICE)
    batch = (image, torch.randn_like(model(image)))
    whole, loss = gradient(model, batch, None)
    found, again = gradient(model, batch, instep.Patches(patch))
    assert relative_error(found, whole) < 1e-10
    assert again == pytest.approx(loss, rel=1e-12)
    if "separable" not in name:  # else the lines above could not fail
        apart, _ = gradient(model, batch, instep.Patches(patch, halo=0))
        assert relative_error(apart, whole) > 1e-3


@pytest.mark.parametrize("name", EXACT)
def test_the_stitched_output_is_the_whole_images(name: str) -> None:
    make, shape, patch = EXACT[name]
    torch.manual_seed(0)
    model = make().to(DEVICE, torch.float64).eval()
    image = torch.randn(shape, dtype=torch.float64, device=DEVICE)
    with torch.no_grad():
        whole = model(image)
    for batch in (1, 4):
        found = instep.stitch(model, image, patch, batch=batch)
        assert found.shape == whole.shape
        assert float((found - whole).abs().max() / whole.abs().max()) < 1e-12


def test_an_image_in_host_memory_meets_a_model_on_the_device() -> None:
    make, shape, patch = next(iter(EXACT.values()))
    torch.manual_seed(0)
    model = make().to(DEVICE, torch.float64).eval()
    image = torch.randn(shape, dtype=torch.float64)
    with torch.no_grad():
        whole = model(image.to(DEVICE)).cpu()
    found = instep.stitch(model, image, patch)
    assert float((torch.as_tensor(found).cpu() - whole).abs().max()) < 1e-12


def test_patches_are_captured_like_any_other_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    make, _, _ = next(iter(EXACT.values()))
    torch.manual_seed(0)
    models = [make().to(DEVICE) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    image = torch.randn(1, 3, 96, 96, device=DEVICE)
    target = torch.randn_like(models[0](image).detach())
    gradients = []
    for model, options in zip(models, ({}, {"fused": True, "capture": True}), strict=True):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        stepper = instep.Stepper(model, optimizer, keep_grads=True, **options)

        def loss(piece: tuple[Tensor, Tensor], model: nn.Module = model) -> Tensor:
            found: Tensor = (model(piece[0]) - piece[1]).square().mean()
            return found

        for _ in range(6):
            stepper.step((image, target), loss, split=instep.Patches(32))
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert relative_error(gradients[1], gradients[0]) < 1e-5
