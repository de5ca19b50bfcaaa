"""The probe: how far a model looks, and where it may be cut, found by trying.

Every single try is blind to some model. A NaN in half of the image shows what the far half reaches,
but not through `where`; cutting the image and comparing shows what padding and alignment do, but
not through a weight that happens to be tiny. So both are done, the larger answer is taken, and
`proof` then compares gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import torch

from instep.splits.reach import Axis, Reach

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from instep.splits.subject import Subject

STEP = 64
"""Sizes are compared this far apart, and no alignment is larger."""
LARGEST = 2048
"""A model that looks further than a quarter of this is taken to look at everything."""
CLOSE = 1e-11
"""Outputs that differ less than this, relative to the largest, are the same in float64."""
SIDES = (8, 16, 32, 48, 64, 96, 128, 256)


class Unsplittable(Exception):  # noqa: N818 -- a finding, turned into an error where it is told
    """The model's outputs on tiles are not those on the whole image, whatever the halo."""

    def __init__(
        self, kind: str, axis: int, size: int = 0, side: int = 0, *, align: int = 1, tried: int = 0
    ) -> None:
        super().__init__(kind)
        self.align = align
        self.tried = tried
        self.kind = kind
        self.axis = axis
        self.size = size
        self.side = side


@dataclass(frozen=True, slots=True)
class Sight:
    """What was found along one axis, for images of any length."""

    axis: int
    size: int
    """A length at which tiles are well inside."""
    align: int
    scales: tuple[Fraction, ...]
    reaches: tuple[tuple[int, int], ...]


def side_that_runs(subject: Subject) -> int:
    """Return the smallest side at which the model runs on an image of that side and larger ones."""
    failure: Exception | None = None
    for side in SIDES:
        try:
            for longer in (0, STEP):
                sizes = [side + longer, *[side] * (subject.dims - 1)]
                made = subject.outputs(subject.images(sizes))
                if any(tensor.isnan().any() for tensor in made):
                    subject.prefer_positive()
        except Exception as error:  # noqa: BLE001 -- whatever the user's model raises on small images
            failure = error
        else:
            return side
    raise Unsplittable("size", 0) from failure


def look(subject: Subject, axis: int, side: int, strides: int, given: int | None = None) -> Sight:
    """Measure scale, reach and alignment along one axis; the other axes stay small.

    given: a halo in input pixels that is to be taken whatever the model looks at; cuts then only
    have to give outputs of the right length.
    """
    view = _View(subject, axis, side)
    period = math.lcm(STEP, strides)
    scales = _scales(view, period)
    if given is not None:
        size = 4 * period
        align = _alignment(view, size, scales, strides, by_length=True)
        return Sight(axis, size, align, scales, _given(scales, given))
    size = 2 * period
    while True:
        by_nan = _nan_reaches(view, size, scales, period)
        limit = size // 4
        if all(max(pair) < scale * limit for pair, scale in zip(by_nan, scales, strict=True)):
            break
        size *= 2
        if size > max(LARGEST, 4 * period):
            raise Unsplittable("global", axis, size // 2, side)
    size = max(size, 4 * period)
    align = _alignment(view, size, scales, strides)
    reaches = by_nan
    for near in (size // 4, size // 2):
        reaches = _larger(reaches, _difference_reaches(view, size, scales, align, near))
    return Sight(axis, size, align, scales, tuple(reaches))


def _given(scales: Sequence[Fraction], pixels: int) -> tuple[tuple[int, int], ...]:
    return tuple((math.ceil(pixels * scale),) * 2 for scale in scales)


def axis_of(
    subject: Subject, sight: Sight, side: int, length: int, given: int | None = None
) -> Axis:
    """Return an axis of the real length: tried at a size with the same remainder."""
    view = _View(subject, sight.axis, side)
    size = sight.size + length % sight.align
    reaches = list(sight.reaches)
    try:
        view.whole(size)
    except Exception as error:
        raise Unsplittable(
            "remainder", sight.axis, length, align=sight.align, tried=size
        ) from error
    if size != sight.size and given is None:
        for near in (size // 4, size // 2):
            found = _difference_reaches(view, size, sight.scales, sight.align, near)
            pairs = zip(found, sight.scales, strict=True)
            if any(max(pair) >= scale * (size // 4) for pair, scale in pairs):
                raise Unsplittable("remainder", sight.axis, length, align=sight.align)
            reaches = _larger(reaches, found)
    lengths = tuple(
        made + int(scale * (length - size))
        for made, scale in zip(view.lengths(size), sight.scales, strict=True)
    )
    known = zip(sight.scales, reaches, strict=True)
    return Axis(length, sight.align, tuple(Reach(s, *pair) for s, pair in known), lengths)


class _View:
    """A subject seen along one axis."""

    def __init__(self, subject: Subject, axis: int, side: int) -> None:
        self.subject = subject
        self.axis = axis
        self.side = side
        self.dim = axis - subject.dims
        self._last: tuple[int, list[Tensor], list[Tensor]] | None = None

    def whole(self, size: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return images of this size along the axis, and what the model makes of them."""
        if self._last is None or self._last[0] != size:
            sizes = [self.side] * self.subject.dims
            sizes[self.axis] = size
            images = self.subject.images(sizes)
            self._last = (size, images, self.outputs(images))
        return self._last[1], self._last[2]

    def outputs(self, images: Sequence[Tensor]) -> list[Tensor]:
        made = self.subject.outputs(images)
        for tensor in made:
            if tensor.dim() <= self.subject.dims:
                raise Unsplittable("no image", self.axis)
        return made

    def lengths(self, size: int) -> list[int]:
        return [tensor.shape[self.dim] for tensor in self.whole(size)[1]]

    def profile(self, mask: Tensor) -> Tensor:
        """Return where along the axis a mask holds anywhere."""
        return mask.movedim(self.dim, 0).flatten(1).any(1)


def _scales(view: _View, period: int) -> tuple[Fraction, ...]:
    small, middle, large = (view.lengths(k * period) for k in (1, 2, 3))
    scales = []
    for a, b, c in zip(small, middle, large, strict=True):
        if b == a or c - b != b - a:
            raise Unsplittable("size", view.axis, 2 * period)
        scales.append(Fraction(b - a, period))
    return tuple(scales)


def _nan_reaches(
    view: _View, size: int, scales: Sequence[Fraction], period: int
) -> list[tuple[int, int]]:
    images, whole = view.whole(size)
    cut = size // 2 // period * period
    left = [0] * len(scales)
    right = [0] * len(scales)
    for first, last in ((0, cut), (cut, size)):
        poisoned = [image.clone() for image in images]
        for part in view.subject.cut(poisoned, view.axis, first, last):
            if part.is_floating_point():
                part.fill_(math.nan)
        for index, made in enumerate(view.outputs(poisoned)):
            if made.shape != whole[index].shape or not made.is_floating_point():
                continue
            places = view.profile(made.isnan() & ~whole[index].isnan()).nonzero().flatten()
            if not len(places):
                continue
            border = int(scales[index] * cut)
            if first == 0:
                left[index] = max(0, int(places[-1]) + 1 - border)
            else:
                right[index] = max(0, border - int(places[0]))
    return list(zip(left, right, strict=True))


def _alignment(
    view: _View, size: int, scales: Sequence[Fraction], strides: int, *, by_length: bool = False
) -> int:
    """Return the smallest cut at which tiles agree with the whole away from the cut."""
    fitting = None
    for align in _candidates(view.subject, scales, strides):
        if fitting is None and by_length and _lengths_fit(view, size, scales, align):
            fitting = align
        found = _difference_reaches(view, size, scales, align, size // 8)
        pairs = zip(found, scales, strict=True)
        if all(max(pair) < scale * (size // 4) for pair, scale in pairs):
            return align
    if fitting is not None:
        return fitting
    raise Unsplittable("position", view.axis, size, view.side)


def _lengths_fit(view: _View, size: int, scales: Sequence[Fraction], align: int) -> bool:
    images, whole = view.whole(size)
    cut = _odd_multiple(align, size // 8)
    try:
        made = view.outputs(view.subject.cut(images, view.axis, cut, size))
    except Exception:  # noqa: BLE001 -- a size that the user's model refuses, in whatever way
        return False
    return all(
        tile.shape[view.dim] == entire.shape[view.dim] - int(scale * cut)
        for tile, entire, scale in zip(made, whole, scales, strict=True)
    )


def _candidates(subject: Subject, scales: Sequence[Fraction], strides: int) -> Iterator[int]:
    whole = [*scales, *(ratio for ratios in subject.ratios for ratio in ratios)]
    smallest = math.lcm(strides, *(fraction.denominator for fraction in whole))
    yield from range(smallest, max(STEP, smallest) + 1, smallest)


def _odd_multiple(align: int, near: int) -> int:
    """Return an odd multiple, so that a true alignment of twice this one would show."""
    times = max(near // align, 1)
    return (times if times % 2 else times - 1) * align


def _difference_reaches(
    view: _View, size: int, scales: Sequence[Fraction], align: int, near: int
) -> list[tuple[int, int]]:
    """Cut the image so far from either end, and see from where on the outputs are the whole's.

    A tile whose output has an unexpected length, or no length in common, differs everywhere.
    """
    images, whole = view.whole(size)
    cut, end = _odd_multiple(align, near), _odd_multiple(align, size - near)
    try:
        from_left = view.outputs(view.subject.cut(images, view.axis, cut, size))
        from_right = view.outputs(view.subject.cut(images, view.axis, 0, end))
    except Exception:  # noqa: BLE001 -- a size that the user's model refuses, in whatever way
        return [(t.shape[view.dim], t.shape[view.dim]) for t in whole]
    reaches = []
    for index, scale in enumerate(scales):
        entire = whole[index]
        length = entire.shape[view.dim]
        shift = int(scale * cut)
        tile = from_left[index]
        left = length
        if tile.shape[view.dim] == length - shift:
            left = _last(view, tile, entire.narrow(view.dim, shift, length - shift))
        tile = from_right[index]
        border = int(scale * end)
        shared = min(tile.shape[view.dim], length)
        right = _first_from_end(
            view, tile.narrow(view.dim, 0, shared), entire.narrow(view.dim, 0, shared), border
        )
        reaches.append((left, right))
    return reaches


def _unequal(view: _View, tile: Tensor, entire: Tensor) -> Tensor:
    if not entire.is_floating_point():
        return view.profile(tile != entire).nonzero().flatten()
    size = float(entire.nan_to_num().abs().amax()) or 1.0
    both = tile.isnan() & entire.isnan()
    return view.profile(~(both | ((tile - entire).abs() <= CLOSE * size))).nonzero().flatten()


def _last(view: _View, tile: Tensor, entire: Tensor) -> int:
    places = _unequal(view, tile, entire)
    return int(places[-1]) + 1 if len(places) else 0


def _first_from_end(view: _View, tile: Tensor, entire: Tensor, border: int) -> int:
    places = _unequal(view, tile, entire)
    first = int(places[0]) if len(places) else tile.shape[view.dim]
    return max(0, border - first)


def _larger(
    one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    return [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)]


def is_random(subject: Subject, side: int) -> bool:
    """Whether two runs on the same image differ: tiles could not agree with the whole either."""
    images = subject.images([side] * subject.dims)
    first, again = subject.outputs(images), subject.outputs(images, seed=1)
    return any(
        a.shape != b.shape or not torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(first, again, strict=True)
    )
