"""How do I use `zero_grad()` and `step()` when an image is cut into patches?

Not at all: the image is the window. `split=instep.Patches(32)` cuts it, adds the gradients of its
patches up and makes one update, which is that of the whole image. A patch reads as far beyond its
edge as the network looks, and counts by its pixels, because patches at the border are smaller.

Before:                                          After:

    optimizer.zero_grad()  # per image, or patch?    stepper.step(
    for patch, part in patches:  # and the seams?        (image, target), loss_fn,
        loss = ... / len(patches)  # wrong weights       split=instep.Patches(32))
        loss.backward()
    optimizer.step()
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

import instep

PATCH = 32
Pair = tuple[Tensor, Tensor]


def network() -> nn.Module:
    torch.manual_seed(1)
    first, second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), second).double()


def loss_of(model: nn.Module) -> Callable[[Pair], Tensor]:
    """Return the loss function: the same for a patch and for a whole image."""

    def loss_fn(pair: Pair) -> Tensor:
        image, target = pair
        return F.mse_loss(model(image), target)

    return loss_fn


def trained(pairs: list[Pair], split: instep.Patches | None) -> tuple[nn.Module, list[str]]:
    """Train for one update per image; return the model, and what to tell of each update."""
    model = network()
    stepper = instep.Stepper(model, SGD(model.parameters(), lr=0.1))
    told = []
    for image, target in pairs:
        update = stepper.step((image, target), loss_of(model), split=split)
        told.append(
            f"image {tuple(target.shape[-2:])}: one update from {update.micro_batches} patches, "
            f"{update.items:.0f} pixels, loss {update.loss:.4f}"
        )
    return model, told


def main() -> None:
    torch.manual_seed(0)
    targets = [torch.randn(1, 1, *size).double() for size in ((80, 72), (100, 40))]
    pairs = [(target * 0.5 + 0.1, target) for target in targets]

    model, told = trained(pairs, instep.Patches(PATCH))
    print("\n".join(told))
    apart, _ = trained(pairs, instep.Patches(PATCH, halo=0))  # what a loop over crops does

    whole = network()
    optimizer = SGD(whole.parameters(), lr=0.1)
    for pair in pairs:
        optimizer.zero_grad()
        loss_of(whole)(pair).backward()
        optimizer.step()
    expected = nn.utils.parameters_to_vector(whole.parameters()).detach()
    for name, made in (("patches", model), ("patches without a halo", apart)):
        found = nn.utils.parameters_to_vector(made.parameters()).detach()
        print(f"{name}, distance from whole images: {float((found - expected).norm()):.1e}")

    # And afterwards the output of the whole image, with no more than a patch in memory.
    image = pairs[0][0]
    stitched, output = instep.stitch(model.eval(), image, PATCH), model(image).detach()
    print(f"stitched output, distance from the whole: {float((stitched - output).norm()):.1e}")


if __name__ == "__main__":
    main()
