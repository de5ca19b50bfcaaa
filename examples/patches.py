"""How do I use `zero_grad()` and `step()` when an image is cut into patches?

The image is the window: gradients add up over its patches, and it makes one update. Patches at
the edge are smaller, so a plain mean over patches would count their pixels too much; `items` says
how many pixels each loss is a mean of.

Before:                                          After:

    optimizer.zero_grad()  # per image, or patch?    with stepper.window() as window:
    for patch, target in patches:                        for patch, target in patches:
        loss = ... / len(patches)  # wrong weights           window.backward(loss, items=...)
        loss.backward()
    optimizer.step()
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

import instep

PATCH = 32
HALO = 2
"""Pixels that two 3 × 3 convolutions see beyond the patch. Without them the edge of a patch is not
what it is inside the image."""


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 1, 3)).double()


def patches_of(image: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut an image that has a border of HALO pixels around what the target covers."""
    height, width = target.shape[-2:]
    for top in range(0, height, PATCH):
        for left in range(0, width, PATCH):
            inner = target[..., top : top + PATCH, left : left + PATCH]
            rows = slice(top, top + inner.shape[-2] + 2 * HALO)
            columns = slice(left, left + inner.shape[-1] + 2 * HALO)
            yield image[..., rows, columns], inner


def main() -> None:
    torch.manual_seed(0)
    sizes = [(80, 72), (100, 40)]
    pairs = []
    for height, width in sizes:
        target = torch.randn(1, 1, height, width).double()
        pairs.append((F.pad(target, [HALO] * 4) * 0.5 + 0.1, target))

    model = network()
    stepper = instep.Stepper(model, SGD(model.parameters(), lr=0.1))
    for image, target in pairs:
        with stepper.window() as window:
            for patch, inner in patches_of(image, target):
                window.backward(F.mse_loss(model(patch), inner), items=inner.numel())
        print(
            f"image {tuple(target.shape[-2:])}: {window.update.micro_batches} patches, "
            f"{window.items:.0f} pixels, {len(window.updates)} update, loss {window.loss:.4f}"
        )

    whole = network()
    optimizer = SGD(whole.parameters(), lr=0.1)
    for image, target in pairs:
        optimizer.zero_grad()
        F.mse_loss(whole(image), target).backward()
        optimizer.step()
    ours, theirs = (nn.utils.parameters_to_vector(m.parameters()).detach() for m in (model, whole))
    print(f"distance from training on whole images: {float((ours - theirs).norm()):.1e}")

    # And afterwards the output of the whole image, with no more than a patch in memory.
    image = pairs[0][0]
    made, expected = instep.stitch(model.eval(), image, PATCH), model(image).detach()
    print(f"stitched output, distance from the whole: {float((made - expected).norm()):.1e}")


if __name__ == "__main__":
    main()
