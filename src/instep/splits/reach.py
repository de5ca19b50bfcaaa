"""Where an image is cut, and what each tile has to read: whole numbers only, no tensors.

A tile answers for a core of the image and is given more than that to read, so that every output
pixel of its core sees what it sees in the whole image. Nothing is padded, and no tile is moved
inwards: tiles at a true border end there, where the model's own padding is the right one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reach:
    """How one output looks at the image along one axis.

    scale: output pixels per input pixel.
    left, right: with the input cut at a, output pixels from scale·a on are right, except for the
        first `left` of them; with it cut at b, those before scale·b except for the last `right`.
    """

    scale: Fraction
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of an image, and of every output of the model along it."""

    length: int
    align: int
    """Cuts are multiples of this: strides would otherwise sample other pixels."""
    reaches: tuple[Reach, ...]
    lengths: tuple[int, ...]
    """Of each output."""


@dataclass(frozen=True, slots=True)
class Span:
    """One tile along one axis."""

    core: Range
    """The input pixels it answers for."""
    read: Range
    """The input pixels it is given."""
    outputs: tuple[Range, ...]
    """Its pixels in each whole output."""
    crops: tuple[Range, ...]
    """The same pixels in what the model makes of the tile."""


def spans(axis: Axis, patch: int, least: int = 0) -> tuple[Span, ...]:
    """Cut an axis into tiles of about `patch` input pixels, which is rounded to the alignment.

    least: a rest at the end with fewer pixels than this belongs to the tile before it.

    >>> from fractions import Fraction
    >>> same = Reach(Fraction(1), left=2, right=2)
    >>> for span in spans(Axis(10, 1, (same,), (10,)), 4):
    ...     print(span.core, span.read, span.crops)
    (0, 4) (0, 6) ((0, 4),)
    (4, 8) (2, 10) ((2, 6),)
    (8, 10) (6, 10) ((2, 4),)
    """
    starts = _starts(axis, max(patch // axis.align, 1) * axis.align, max(axis.align, least))
    return tuple(_span(axis, a, b) for a, b in itertools.pairwise([*starts, axis.length]))


def _starts(axis: Axis, size: int, least: int) -> list[int]:
    outputs = list(zip(axis.reaches, axis.lengths, strict=True))
    starts = [0]
    for start in range(size, axis.length, size):
        leaves_output = all(reach.scale * start < length for reach, length in outputs)
        if leaves_output and axis.length - start >= least:
            starts.append(start)
    return starts


def _span(axis: Axis, start: int, end: int) -> Span:
    outputs: list[Range] = []
    first, last = start, end
    for reach, length in zip(axis.reaches, axis.lengths, strict=True):
        o0 = int(reach.scale * start)
        o1 = length if end == axis.length else int(reach.scale * end)
        outputs.append((o0, o1))
        step = reach.scale * axis.align
        first = min(first, max(0, math.floor((o0 - reach.left) / step) * axis.align))
        last = max(last, min(axis.length, math.ceil((o1 + reach.right) / step) * axis.align))
    read = (0 if start == 0 else first, axis.length if end == axis.length else last)
    crops = tuple(
        (o0 - int(reach.scale * read[0]), o1 - int(reach.scale * read[0]))
        for reach, (o0, o1) in zip(axis.reaches, outputs, strict=True)
    )
    return Span((start, end), read, tuple(outputs), crops)


def widened(span: Span, axis: Axis) -> Span:
    """Return the same tile with half as much more to read on every side as it answers for."""
    more = max((span.core[1] - span.core[0]) // 2 // axis.align, 1) * axis.align
    first = max(0, span.read[0] - more)
    last = min(axis.length, span.read[1] + more)
    crops = tuple(
        (o0 - int(reach.scale * first), o1 - int(reach.scale * first))
        for reach, (o0, o1) in zip(axis.reaches, span.outputs, strict=True)
    )
    return Span(span.core, (first, last), span.outputs, crops)


def halo(axis: Axis) -> Range:
    """Return how many input pixels a tile inside the image reads beyond its core, at most."""
    step = [(reach, reach.scale * axis.align) for reach in axis.reaches]
    left = max((math.ceil(reach.left / s) * axis.align for reach, s in step), default=0)
    right = max((math.ceil(reach.right / s) * axis.align for reach, s in step), default=0)
    return left, right


def smallest_proof(axis: Axis) -> int:
    """Return the core size at which three tiles already have cuts that the image does not end at.

    The last tile must begin, and the first one end, inside the image.
    """
    reached = max(halo(axis)) + 2 * axis.align
    return math.ceil(reached / (2 * axis.align)) * axis.align
