"""Where tiles of an image are read and where what is made of them goes: exactly, or blended."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import torch

from instep.errors import SplitError
from instep.splits.blending import reads, scale_of, windows
from instep.splits.tiles import take, tiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from instep.splits.blending import Blend, Window
    from instep.splits.certificate import Certificate
    from instep.splits.reach import Range
    from instep.splits.tiles import Slices


class Grid(Protocol):
    """Tiles by their numbers, and outputs of the model by theirs."""

    adds: bool
    """Whether several tiles add up to one pixel."""

    def __len__(self) -> int:
        """Return how many tiles an image has."""

    def read(self, tile: int) -> Slices:
        """Return what a tile reads."""

    def placed(self, tile: int, output: int) -> Slices:
        """Return where a tile's part of an output lies."""

    def part(self, tile: int, output: int, made: Tensor) -> Tensor:
        """Return a tile's part of an output, from what the model made of the tile."""

    def lengths(self, output: int, made: Tensor) -> tuple[int, ...]:
        """Return the sizes of a whole output."""


class Exact:
    """Tiles with the halo of a certificate: each pixel is made by one of them, as by the whole."""

    adds = False

    def __init__(self, certificate: Certificate, patch: Sequence[int]) -> None:
        self._axes = certificate.axes
        self._tiles = tiles(certificate.axes, patch)
        self._same = [Fraction(1)] * len(certificate.axes)

    def __len__(self) -> int:
        return len(self._tiles)

    def read(self, tile: int) -> Slices:
        """Return the core of a tile and its halo."""
        return self._tiles[tile].read(self._same)

    def placed(self, tile: int, output: int) -> Slices:
        """Return the core of a tile."""
        return self._tiles[tile].placed(output)

    def part(self, tile: int, output: int, made: Tensor) -> Tensor:
        """Crop to the core."""
        part = take(made, self._tiles[tile].crop(output))
        return _fitting(part, self.placed(tile, output), made)

    def lengths(self, output: int, made: Tensor) -> tuple[int, ...]:
        """Return the sizes that were found; along an axis that is not cut, those that were made."""
        sizes = made.shape[made.dim() - len(self._axes) :]
        known = zip(self._axes, sizes, strict=True)
        return tuple(size if axis is None else axis.lengths[output] for axis, size in known)


class Uncut:
    """Images that are no larger than a tile: one tile, whatever the model makes of it."""

    adds = False

    def __init__(self, dims: int) -> None:
        self._dims = dims

    def __len__(self) -> int:
        return 1

    def read(self, tile: int) -> Slices:  # noqa: ARG002 -- there is only one
        """Return everything."""
        return (slice(None),) * self._dims

    def placed(self, tile: int, output: int) -> Slices:  # noqa: ARG002 -- there is only one
        """Return everything."""
        return ()

    def part(self, tile: int, output: int, made: Tensor) -> Tensor:  # noqa: ARG002 -- likewise
        """Return everything."""
        return made

    def lengths(self, output: int, made: Tensor) -> tuple[int, ...]:  # noqa: ARG002 -- likewise
        """Return the sizes as they are."""
        return tuple(made.shape[max(made.dim() - self._dims, 1) :])


class Blended:
    """Windows that overlap.

    first: what the model made of the window at the start of the image, to know the scales.
    """

    adds = True

    def __init__(
        self,
        sizes: Sequence[int],
        patch: Sequence[int],
        overlap: Sequence[int],
        blend: Blend,
        first: Sequence[Tensor],
    ) -> None:
        dims = len(sizes)
        self._scales = [_scales(made, sizes, patch) for made in first]
        self._overlap, self._blend = overlap, blend
        self._reads: list[list[Range]] = []
        self.is_ragged = False
        """Whether a last window ends between two pixels of an output."""
        for axis in range(dims):
            align = math.lcm(*(scale[axis].denominator for scale in self._scales))
            self._reads.append(reads(sizes[axis], patch[axis], overlap[axis], align))
            self.is_ragged |= sizes[axis] % align > 0
        self._windows = [
            [self._along(axis, scale[axis]) for axis in range(dims)] for scale in self._scales
        ]
        self._tiles = list(itertools.product(*(range(len(found)) for found in self._reads)))

    def _along(self, axis: int, scale: Fraction, last: int | None = None) -> tuple[Window, ...]:
        return windows(self._reads[axis], scale, self._overlap[axis], self._blend, last)

    def settle(self, made: Sequence[Tensor]) -> None:
        """Let the last windows end where what the model made of the very last one does."""
        for output, tensor in enumerate(made):
            sizes = tensor.shape[-len(self._reads) :]
            for axis, (size, scale) in enumerate(zip(sizes, self._scales[output], strict=True)):
                start, end = self._reads[axis][-1]
                exact = scale * (end - start)
                if size not in (math.floor(exact), math.ceil(exact)):
                    _refuse_end(end - start, size, exact)
                self._windows[output][axis] = self._along(axis, scale, size)

    def __len__(self) -> int:
        return len(self._tiles)

    def read(self, tile: int) -> Slices:
        """Return the window."""
        numbers = zip(self._reads, self._tiles[tile], strict=True)
        return tuple(slice(*found[number]) for found, number in numbers)

    def placed(self, tile: int, output: int) -> Slices:
        """Return the window, in pixels of the output."""
        return tuple(slice(*window.placed) for window in self._of(tile, output))

    def part(self, tile: int, output: int, made: Tensor) -> Tensor:
        """Weigh what was made; narrow types are widened, because parts are added up."""
        found = self._of(tile, output)
        part = _fitting(made, self.placed(tile, output), made)
        part = part.to(torch.promote_types(made.dtype, torch.float32))
        for axis, window in enumerate(found):
            shape = [-1 if index == axis else 1 for index in range(len(found))]
            weights = torch.tensor(window.weights, dtype=part.dtype, device=part.device)
            part = part * weights.view(shape)
        return part

    def lengths(self, output: int, made: Tensor) -> tuple[int, ...]:  # noqa: ARG002 -- as planned
        """Return where the last windows end."""
        return tuple(found[-1].placed[1] for found in self._windows[output])

    def _of(self, tile: int, output: int) -> list[Window]:
        numbers = zip(self._windows[output], self._tiles[tile], strict=True)
        return [found[number] for found, number in numbers]


def _fitting(part: Tensor, placed: Slices, made: Tensor) -> Tensor:
    """Return the part, unless it has not the size of its place: arrays would spread it out."""
    sizes = part.shape[part.dim() - len(placed) :]
    pairs = zip(sizes, placed, strict=True)
    if any(part.stop is not None and n != part.stop - part.start for n, part in pairs):
        wanted = tuple(None if p.stop is None else p.stop - p.start for p in placed)
        raise SplitError(
            f"a tile's output of {tuple(made.shape)} has no {wanted} pixels for its place.",
            why="the model's output does not grow with its input as it did when it was tried.",
            fix="use a model whose output size follows from its input's, or another patch.",
            more="patches",
        )
    return part


def _refuse_end(read: int, size: int, exact: Fraction) -> None:
    raise SplitError(
        f"of {read} pixels of the last window the model makes {size}, where {float(exact):g} were "
        "expected.",
        why="its output does not end where the image does, so that the size of the whole output is "
        "not known.",
        fix="crop the output inside the model, pad the image to a multiple of the model's stride, "
        "or pass no overlap: the halo is then found by trying.",
        more="patches",
    )


def _scales(made: Tensor, sizes: Sequence[int], patch: Sequence[int]) -> list[Fraction]:
    """Return the output's pixels per pixel of the image, from what was made of one window."""
    if not made.is_floating_point():
        raise SplitError(
            f"the model returns {made.dtype}, which cannot be blended.",
            why="where windows overlap, a pixel is a weighted mean of what they make of it.",
            fix="return scores or probabilities, and decide after stitching; or pass no overlap.",
            more="patches",
        )
    found: list[Fraction] = []
    axes = made.shape[-len(sizes) :] if made.dim() > len(sizes) else ()
    for n, length, size in zip(axes, sizes, patch, strict=False):
        # The only window along an axis is its own place, whatever its scale.
        scale = Fraction(n, length) if length <= size else scale_of(n, size)
        if scale is not None:
            found.append(scale)
    if len(found) < len(sizes):
        read = " x ".join(str(min(pair)) for pair in zip(sizes, patch, strict=True))
        raise SplitError(
            f"of a window of {read} pixels the model makes {tuple(made.shape)}.",
            why="it is no whole multiple or fraction of the window, so that its place in the "
            "whole output is not known.",
            fix="pad inside the model, choose a patch that its stride divides, or pass no overlap: "
            "the halo is then found by trying.",
            more="patches",
        )
    return found
