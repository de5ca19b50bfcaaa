"""Labels that are no class do not count, also where the model was never probed."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import instep
from instep.engine.reference import relative_error
from instep.errors import LossError

CLASSES = 4


def network(dims: int = 2) -> nn.Module:
    torch.manual_seed(0)
    conv = nn.Conv2d if dims == 2 else nn.Conv3d
    return nn.Sequential(conv(1, 3, 3, padding=1), nn.GELU(), conv(3, CLASSES, 1)).double()


def labelled(*sizes: int, samples: int = 1, ignored: int = 255):
    """Images whose first rows have no label at all, so that whole patches are without any."""
    generator = torch.Generator().manual_seed(1)
    image = torch.randn(samples, 1, *sizes, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, CLASSES, (samples, *sizes), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.2] = ignored
    labels[:, : sizes[0] // 2 + 3] = ignored
    return image, labels


def stepped(model, batch, loss_fn, split):
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.0), keep_grads=True)
    model.zero_grad()
    update = stepper.step(batch, loss_fn, split=split)
    return [p.grad.clone() for p in model.parameters()], update


def apart(model, batch, patch, ignored=255):
    """The gradient of the mean over all labels that count, of patches that are on their own."""
    image, labels = batch
    axes = range(2, image.dim())
    tiles = [(image, labels)]
    for axis in axes:
        tiles = [
            pair
            for x, y in tiles
            for pair in zip(x.split(patch, axis), y.split(patch, axis - 1), strict=True)
        ]
    total = sum(
        functional.cross_entropy(model(x), y, ignore_index=ignored, reduction="sum")
        for x, y in tiles
    )
    return torch.autograd.grad(total / (labels != ignored).sum(), list(model.parameters()))


@pytest.mark.parametrize("sizes", [(32, 24), (16, 8, 16)], ids=["2-D", "3-D"])
@pytest.mark.parametrize("ignored", [255, -1, -100])
@pytest.mark.parametrize("given", [True, False], ids=["given", "auto"])
def test_independent_patches_count_the_labels_that_are_classes(sizes, ignored, given):
    model, batch = network(len(sizes)), labelled(*sizes, ignored=ignored)

    def loss_fn(piece):
        return functional.cross_entropy(model(piece[0]), piece[1], ignore_index=ignored)

    split = instep.Patches(8, halo=0, ignore=ignored if given else "auto")
    found, update = stepped(model, batch, loss_fn, split)
    assert update.items == int((batch[1] != ignored).sum())
    assert math.isfinite(update.loss)
    assert relative_error(found, apart(model, batch, 8, ignored)) < 1e-12


def test_images_that_fit_into_a_patch_do_so_too():
    model, (image, labels) = network(), labelled(24, 16, samples=3)
    labels[0] = 255

    def loss_fn(piece):
        return functional.cross_entropy(model(piece[0]), piece[1], ignore_index=255)

    split = instep.Patches(64, images=1)
    found, update = stepped(model, (image, labels), loss_fn, split)
    whole = torch.autograd.grad(loss_fn((image, labels)), list(model.parameters()))
    assert update.micro_batches == 3
    assert update.items == int((labels != 255).sum())
    assert relative_error(found, whole) < 1e-12


def test_an_output_that_the_loss_function_resizes_tells_its_classes_as_well():
    torch.manual_seed(0)
    model = nn.Conv2d(1, CLASSES, 2, stride=2).double()
    batch = labelled(32, 32)

    def loss_fn(piece):
        made = functional.interpolate(model(piece[0]), scale_factor=2)
        return functional.cross_entropy(made, piece[1], ignore_index=255)

    _, update = stepped(model, batch, loss_fn, instep.Patches(8, halo=0))
    assert update.items == int((batch[1] != 255).sum())


def test_looking_changes_nothing_and_happens_once():
    torch.manual_seed(0)
    base = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout2d(0.5), nn.Conv2d(1, CLASSES, 1)).double()
    batch = labelled(16, 16)
    ends = []
    for ignore in ("auto", 255):
        model = copy.deepcopy(base)
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
        split = instep.Patches(8, halo=0, ignore=ignore)
        calls = {"model": 0, "loss": 0}

        def loss_fn(piece, model=model, calls=calls):
            made = model(piece[0])
            calls["loss"] += 1
            return functional.cross_entropy(made, piece[1], ignore_index=255)

        def called(*_, calls=calls):
            calls["model"] += 1

        model.register_forward_hook(called)
        torch.manual_seed(3)
        for _ in range(2):
            stepper.step(batch, loss_fn, split=split)
        # The look ends where the model has answered.
        assert calls == {"model": 8 + (ignore == "auto"), "loss": 8}
        ends.append([*model.state_dict().values(), torch.random.get_rng_state()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_verify_says_that_independent_patches_differ_and_not_that_items_are_missing():
    model, batch = network(), labelled(16, 16)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def loss_fn(piece):
        return functional.cross_entropy(model(piece[0]), piece[1], ignore_index=255)

    found = instep.verify(stepper, batch, loss_fn, split=instep.Patches(8, halo=0))
    assert not found.ok
    assert found.cause is not None
    assert found.cause.name == "coupled"


def test_classes_that_nothing_tells_are_asked_for():
    """The model is not seen: labels of 255 may count or not, and neither is taken for granted."""
    model, batch = network(), labelled(16, 16)

    def unseen(piece):
        made = model[2](model[1](model[0](piece[0])))
        return functional.cross_entropy(made, piece[1], ignore_index=255)

    with pytest.raises(LossError, match="ignore=255"):
        stepped(model, batch, unseen, instep.Patches(8, halo=0))
    found, _ = stepped(model, batch, unseen, instep.Patches(8, halo=0, ignore=255))
    assert relative_error(found, apart(model, batch, 8)) < 1e-12
    plain = (batch[0], batch[1].clamp(max=CLASSES - 1))
    _, update = stepped(model, plain, unseen, instep.Patches(8, halo=0))
    assert update.items == plain[1].numel()


def test_a_model_that_waits_for_other_ranks_is_not_called_to_look():
    """A rank without samples would not call its own, and the others would wait for it."""
    inner, batch = network(), labelled(16, 16)
    calls = []

    class DistributedDataParallel(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            calls.append(x)
            return self.inner(x)

    plan = instep.Patches(8, halo=0).plan(batch, [wrapped := DistributedDataParallel()])
    plan.try_on(lambda piece: wrapped(piece[0]).mean())
    assert not calls
    assert {piece.items for piece in plan} == {None}
