"""How MONAI and TorchIO cut images into grids of patches, driven as their documentation does."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

Patch = tuple[Tensor, Tensor]

PACKAGES = ("monai", "torchio")


def installed(package: str) -> bool:
    return find_spec(package) is not None


def monai(image: Tensor, target: Tensor, patch: int) -> Iterator[Patch]:
    """`PatchIter`, which `GridPatchDataset` reads from; by default it pads the rest by wrapping.

    `PatchIterd` wants fields of one shape, so an image and a larger target have a `PatchIter` each.
    """
    from monai.data.grid_dataset import PatchIter

    dims = image.dim() - 2
    scale, target = _fitting(image, target)
    for one, other in zip(image, target, strict=True):
        inputs = PatchIter((patch,) * dims)(one.numpy())
        targets = PatchIter((scale * patch,) * dims)(other.numpy())
        for (x, _), (y, _) in zip(inputs, targets, strict=True):
            yield _batch(x, image), _batch(y, image)


def torchio(image: Tensor, target: Tensor, patch: int) -> Iterator[Patch]:
    """`GridSampler`, without overlap: the last patch of a row is moved inwards."""
    import torchio as tio

    dims = image.dim() - 2
    scale, target = _fitting(image, target)

    def sampled(tensor: Tensor, size: int) -> Iterator[Tensor]:
        # It knows volumes only: an image is one of a single slice.
        volume = tensor if dims == 3 else tensor.unsqueeze(-1)
        sizes = (size,) * dims + (1,) * (3 - dims)
        subject = tio.Subject(image=tio.ScalarImage(tensor=volume))
        for cut in tio.GridSampler(subject, sizes):
            data = cut["image"].data
            yield data if dims == 3 else data.squeeze(-1)

    for one, other in zip(image, target, strict=True):
        for x, y in zip(sampled(one, patch), sampled(other, scale * patch), strict=True):
            yield _batch(x, image), _batch(y, image)


def _fitting(image: Tensor, target: Tensor) -> tuple[int, Tensor]:
    """The target's scale, and the target without a last row that stands for no pixel."""
    dims = image.dim() - 2
    scale = target.shape[-1] // image.shape[-1]
    fitting: tuple[Any, ...] = (..., *(slice(scale * n) for n in image.shape[-dims:]))
    return scale, target[fitting]


def _batch(part: object, like: Tensor) -> Tensor:
    return torch.as_tensor(part).to(like.dtype).unsqueeze(0)


def accumulate(model: nn.Module, patches: list[Patch]) -> None:
    """Add up the mean losses of all patches, each divided by their number."""
    for x, y in patches:
        ((model(x) - y).square().mean() / len(patches)).backward()
