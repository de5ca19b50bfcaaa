"""An image that is read tile by tile, and the model that is run on the tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.errors import SplitError
from instep.splits.micro import whole_number
from instep.splits.reading import array_of, tensor_of
from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from instep.splits.grids import Grid
    from instep.splits.tiles import Slices

Place = tuple[int, int]
"""A sample, and a tile of it."""
GLIMPSE = 16
"""Pixels along each axis of the places from which the range of an image's values is taken."""


@dataclass(frozen=True, slots=True)
class View:
    """An image as it is cut: how many samples of which sizes, and how a tile of one is read."""

    array: Any
    patch: tuple[int, ...]
    has_samples: bool

    @classmethod
    def of(cls, image: Any, patch: int | tuple[int, ...]) -> View:
        """Look at an image; the number of patch sizes says how many image axes it has."""
        array = array_of(image)
        axes = 0 if array is None else len(array.shape)
        sizes = patch if isinstance(patch, tuple) else (patch,) * (axes - 2)
        if axes - len(sizes) not in (1, 2) or not sizes or 0 in array.shape:
            kind = type(image).__name__ if array is None else f"of shape {tuple(array.shape)}"
            raise SplitError(
                f"the image is {kind}, patch is {patch!r}.",
                why="an image has samples, channels and one axis or more (N, C, H, W), none of "
                "them empty; patch is one number, or one for each axis.",
                fix="add what is missing (image[None]), or give patch one number per axis: a "
                "channel axis must come before them, samples may.",
                more="patches",
            )
        if any((whole_number(size) or 0) < 1 for size in sizes):
            raise SplitError(
                f"patch is {patch!r}.",
                why="it is how many pixels a tile has along each axis.",
                fix="pass patch=512, or patch=(64, 256, 256) for volumes.",
                more="patches",
            )
        return cls(array, tuple(int(size) for size in sizes), axes - len(sizes) == 2)

    @property
    def samples(self) -> int:
        """How many images there are."""
        return int(self.array.shape[0]) if self.has_samples else 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """Pixels along each image axis."""
        return tuple(self.array.shape[-len(self.patch) :])

    @property
    def device(self) -> torch.device:
        """Where a new output is made: beside the image."""
        return self.array.device if isinstance(self.array, Tensor) else torch.device("cpu")

    def read(self, sample: int, slices: Slices) -> Tensor:
        """Read a part of one sample, with its channels."""
        if not self.has_samples:
            return tensor_of(self.array[(slice(None), *slices)])
        return tensor_of(self.array[(slice(sample, sample + 1), slice(None), *slices)])[0]

    def shape_of(self, slices: Slices) -> tuple[int, ...]:
        """Return how many pixels slices leave along each axis."""
        pairs = zip(slices, self.sizes, strict=True)
        return tuple(len(range(*part.indices(n))) for part, n in pairs)


@dataclass(frozen=True, slots=True)
class Run:
    """A model and what it is run on."""

    model: Callable[..., Any]
    view: View
    prepare: Callable[[Tensor], Tensor] | None
    device: torch.device

    def __call__(self, group: Sequence[Place], grid: Grid) -> Any:
        """Run the model on some tiles of the same shape."""
        return self.made([self.view.read(sample, grid.read(tile)) for sample, tile in group])

    def start(self) -> Any:
        """Run the model on the first window of the first sample."""
        pairs = zip(self.view.patch, self.view.sizes, strict=True)
        return self.made([self.view.read(0, tuple(slice(0, min(*pair)) for pair in pairs))])

    def example(self) -> Tensor:
        """Return some of the image, from its corners and its middle, beside each other."""
        places = []
        for where in (0.0, 0.5, 1.0):
            starts = [int((n - min(n, GLIMPSE)) * where) for n in self.view.sizes]
            places.append(tuple(slice(start, start + GLIMPSE) for start in starts))
        seen = torch.cat([self.view.read(0, place) for place in places], -1)[None]
        whole = self._prepared(seen.clone())
        half = self._prepared(seen[..., : seen.shape[-1] // 2].clone())
        again = whole[..., : half.shape[-1]]
        if self.prepare is not None and not torch.equal(again.nan_to_num(), half.nan_to_num()):
            raise SplitError(
                "prepare makes something else of a part of an image than of the whole.",
                why="it is done to every tile by itself, so it must not look at other pixels.",
                fix="take means and ranges beforehand, and use them as numbers; what looks at "
                "neighbours belongs into the model.",
                more="patches",
            )
        return whole

    def _prepared(self, tile: Tensor) -> Tensor:
        tile = tile.to(self.device)
        return tile if self.prepare is None else self.prepare(tile)

    def made(self, read: Sequence[Tensor]) -> Any:
        """Run the model on tiles that were read."""
        with torch.inference_mode():
            tiles = self._prepared(torch.stack(list(read)))
            result = self.model(tiles)
        for tensor in tensors(result):
            if not tensor.dim() or len(tensor) != len(read):
                raise SplitError(
                    f"of {len(read)} tiles the model made a tensor of {tuple(tensor.shape)}.",
                    why="the first dimension of an output is that of the samples.",
                    fix="return one output per sample, and nothing that belongs to none.",
                    more="patches",
                )
        return result
