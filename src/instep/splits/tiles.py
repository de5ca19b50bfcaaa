"""Tiles: the product of the spans of all axes, and the slices each of them means."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.splits.reach import spans

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from fractions import Fraction

    from torch import Tensor

    from instep.splits.reach import Axis, Span

Slices = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile: a span along every axis that is cut, None along those that are not."""

    spans: tuple[Span | None, ...]

    def read(self, ratios: Sequence[Fraction]) -> Slices:
        """Return what the tile is given of an input with so many pixels per pixel of the first."""
        return tuple(
            slice(None)
            if span is None
            else slice(int(span.read[0] * ratio), int(span.read[1] * ratio))
            for span, ratio in zip(self.spans, ratios, strict=True)
        )

    def placed(self, output: int) -> Slices:
        """Return where its core lies in a whole output."""
        return tuple(_slice(None if s is None else s.outputs[output]) for s in self.spans)

    def crop(self, output: int) -> Slices:
        """Return where its core lies in what the model makes of the tile."""
        return tuple(_slice(None if s is None else s.crops[output]) for s in self.spans)

    @property
    def likeness(self) -> Hashable:
        """How it is cropped: two tiles of one size may lie at different borders."""
        return tuple(None if span is None else tuple(span.crops) for span in self.spans)


def _slice(part: tuple[int, int] | None) -> slice:
    return slice(None) if part is None else slice(*part)


def tiles(
    axes: Sequence[Axis | None], patch: Sequence[int], *, stand_alone: bool = False
) -> tuple[Tile, ...]:
    """Cut an image along every axis that is given; rows first, as memory lies.

    stand_alone: without a halo, a small rest at the end is not large enough for most models.
    """
    along = [
        (None,) if axis is None else spans(axis, size, size // 4 if stand_alone else 0)
        for axis, size in zip(axes, patch, strict=True)
    ]
    return tuple(Tile(chosen) for chosen in itertools.product(*along))


def take(tensor: Tensor, slices: Slices) -> Tensor:
    """Cut a tensor along its last axes."""
    index: tuple[Any, ...] = (..., *slices)
    return tensor[index]
