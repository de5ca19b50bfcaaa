"""A sample of arrays that are cut together: which they are, and at which scale each of them is."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.errors import SplitError
from instep.splits.places import Layout, ratios_of
from instep.splits.reading import array_of, is_floating

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from torch import Tensor

    Key = str | int | None


@dataclass(frozen=True, slots=True)
class Sample:
    """One source: its arrays by their names, or by their places in a tuple."""

    value: Any
    number: int
    dims: int
    arrays: dict[Key, Any]
    """Those that are cut; the first one tells the positions."""
    whole: dict[Key, Any]
    """Those that are not."""

    @classmethod
    def of(cls, value: Any, number: int, dims: int, uncut: Sequence[Key]) -> Sample:
        """Find the arrays of a sample."""
        arrays: dict[Key, Any] = {}
        whole: dict[Key, Any] = {}
        for key, part in _parts(value):
            array = array_of(part)
            if array is None or (len(array.shape) < dims and key not in uncut):
                continue
            (whole if key in uncut else arrays)[key] = array
        if not arrays:
            raise SplitError(
                f"source {number} has no array with {dims} image axes.",
                why=f"it is a {type(value).__name__}; patches are cut from arrays, along their "
                "last axes.",
                fix="pass samples of arrays, or of paths of .npy and .tif files; for axes other "
                "than two, give patch a number for each.",
                more="patches",
            )
        return cls(value, number, dims, arrays, whole)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Pixels of the first array along each image axis."""
        first = next(iter(self.arrays.values()))
        return tuple(first.shape[len(first.shape) - self.dims :])

    def ratios(self, key: Key) -> tuple[Fraction, ...]:
        """Return an array's pixels per pixel of the first one."""
        shape = self.arrays[key].shape
        return ratios_of(shape[len(shape) - self.dims :], self.sizes)

    def layout(self, patch: tuple[int, ...], *, is_padded: bool) -> Layout:
        """Return the positions of patches, which every array must be able to take."""
        if 0 in self.sizes or (
            not is_padded and any(n < size for n, size in zip(self.sizes, patch, strict=True))
        ):
            raise SplitError(
                f"source {self.number} has {_by(self.sizes)} pixels, the patch {_by(patch)}.",
                why="a patch larger than the image would have to be made up in part.",
                fix='choose a smaller patch, leave the image out, or pass pad="reflect" or '
                'pad="edge" to continue it at its borders.',
                more="patches",
            )
        found = [self.ratios(key) for key in self.arrays]
        align = [math.lcm(*(ratios[i].denominator for ratios in found)) for i in range(self.dims)]
        for key in self.arrays:
            ratios = self.ratios(key)
            parts = zip(patch, ratios, align, strict=True)
            if any((size * r).denominator != 1 or size % step for size, r, step in parts):
                shape = tuple(self.arrays[key].shape)
                raise SplitError(
                    f"source {self.number}: {key!r} of shape {shape} cannot be cut with an image "
                    f"of {_by(self.sizes)} into patches of {_by(patch)}.",
                    why=f"it has {_by(ratios)} pixels per pixel of the image, which is no whole "
                    "number of pixels in a patch.",
                    fix="give it the size of the image, a multiple or a fraction of it that "
                    "divides the patch, or name it in uncut=.",
                    more="patches",
                )
        return Layout(self.sizes, patch, tuple(align))

    def require(self, key: Key, option: str) -> Any:
        """Return the array that an option names."""
        if key not in self.arrays:
            raise SplitError(
                f"{option} is {key!r}, which source {self.number} does not have.",
                why=f"its arrays are {list(self.arrays)}.",
                fix="name an array of the samples, or give its place in them.",
                more="patches",
            )
        return self.arrays[key]

    def labels(self) -> Key:
        """Return which array has the labels: the first of whole numbers after the image."""
        for key in list(self.arrays)[1:]:
            if not is_floating(self.arrays[key].dtype):
                return key
        raise SplitError(
            f"source {self.number} has no labels.",
            why="foreground needs to know which pixels are labelled, and there is no array of "
            "whole numbers after the image.",
            fix="add one, or name it with label=.",
            more="patches",
        )

    def renewed(self, cut: Callable[[Any, tuple[Fraction, ...]], Tensor]) -> Any:
        """Return the sample with its arrays cut; what is not cut is read whole."""
        made: dict[Key, Any] = {}
        for key, part in _parts(self.value):
            if key in self.arrays:
                made[key] = cut(self.arrays[key], self.ratios(key))
            elif key in self.whole:
                made[key] = cut(self.whole[key], ())
            else:
                made[key] = part
        return _rebuilt(self.value, made)


def _by(sizes: Sequence[Any]) -> str:
    return " x ".join(map(str, sizes))


def _parts(value: Any) -> list[tuple[Key, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return [(None, value)]


def _rebuilt(value: Any, made: dict[Key, Any]) -> Any:
    if isinstance(value, Mapping):
        return dict(made)
    if isinstance(value, list | tuple):
        children = list(made.values())
        return type(value)(*children) if hasattr(value, "_fields") else type(value)(children)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        other = copy.copy(value)
        for name, part in made.items():
            # Frozen ones, too: the copy is ours until it is returned.
            object.__setattr__(other, str(name), part)
        return other
    return made[None]
