"""`RandomPatches`: patches from anywhere in images that need not fit into memory."""

from __future__ import annotations

import contextlib
import math
import operator
import random as python_random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import Dataset

from instep.errors import SplitError
from instep.splits.foreground import Foreground, Map, WeightMap
from instep.splits.micro import whole_number
from instep.splits.places import Ballot, Layout, reflected
from instep.splits.reading import window
from instep.splits.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from fractions import Fraction

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Position:
    """Where a patch lies: in which source, and where it begins, in pixels of the first array."""

    source: int
    start: tuple[int, ...]


class RandomPatches(Dataset[Any]):
    """A dataset of random patches, each read when it is asked for.

    sources: samples as tuples, lists, dicts or dataclasses of arrays, or arrays alone. Arrays are
        tensors, numpy arrays and memmaps, zarr arrays, or paths of .npy and .tif files; their last
        axes are the image's. They are cut together, also at different scales; the first one tells
        the positions. What is no array is returned as it is.
    patch: pixels of the first array along each axis: one number for images, three for volumes.
    length: patches in an epoch; by default as many as would cover the images once.
    weight: one number per source, or the name or place of an array of weights in the samples: a
        pixel is drawn by its weight and the patch lies around it. By default every position in
        every image is equally likely, so that larger images are drawn more often.
    foreground: with this probability, the patch lies around a labelled pixel.
    label: the name or place of the labels; by default the first whole numbers after the image.
    background: labels that are not foreground.
    balanced: draw a class first, each as often as the others, and then a pixel of it.
    uncut: names or places of arrays that are returned whole.
    pad: "reflect" or "edge" continues images that are smaller than the patch.
    transform: done to every sample. Random numbers in it follow from the seed, too.

    Patch `index` of an epoch follows from the seed, the epoch and the index alone: however many
    workers read, and wherever a run is resumed. Call `set_epoch` for other patches in each epoch.

    >>> import torch, instep
    >>> pairs = [(torch.rand(3, 100, 80), torch.rand(3, 200, 160)) for _ in range(4)]
    >>> patches = instep.RandomPatches(pairs, patch=32, length=1000, seed=0)
    >>> small, large = patches[7]
    >>> len(patches), tuple(small.shape), tuple(large.shape)
    (1000, (3, 32, 32), (3, 64, 64))
    """

    def __init__(
        self,
        sources: Sequence[Any],
        patch: int | tuple[int, ...],
        *,
        length: int | None = None,
        seed: int = 0,
        weight: Sequence[float] | str | int | None = None,
        foreground: float | None = None,
        label: str | int | None = None,
        background: Sequence[int] = (0, -100),
        balanced: bool = False,
        uncut: str | int | Sequence[str | int] = (),
        pad: Literal["reflect", "edge"] | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self._patch = _sizes(patch)
        _require_options(sources, length, foreground, pad)
        names = (uncut,) if isinstance(uncut, str | int) else tuple(uncut)
        dims = len(self._patch)
        self._samples = [Sample.of(s, number, dims, names) for number, s in enumerate(sources)]
        self._layouts = [
            sample.layout(self._patch, is_padded=pad is not None) for sample in self._samples
        ]
        self._pad = pad
        self._transform = transform
        self._seed = operator.index(seed)
        # Workers that stay alive between epochs have a copy of everything but this.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._length = self._covering() if length is None else operator.index(length)
        self._positions = Ballot.of([layout.positions for layout in self._layouts])
        self._sources: Ballot | None = None
        self._weights: WeightMap | None = None
        self._foreground: Foreground | None = None
        self._probability = float(foreground or 0)
        if isinstance(weight, str | int):
            maps = self._maps(weight, "weight")
            self._weights = WeightMap(maps)
        elif weight is not None:
            self._sources = _per_source(weight, len(self._samples))
        if foreground:
            maps = self._maps(self._samples[0].labels() if label is None else label, "label")
            self._foreground = Foreground(maps, background, balanced=balanced)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        random = self._random(index)
        place = self._drawn(random)
        sample, layout = self._samples[place.source], self._layouts[place.source]
        value = sample.renewed(
            lambda array, ratios: self._cut(array, ratios, layout, place.start),
        )
        if self._transform is None:
            return value
        with _seeded(random.getrandbits(63)):
            return self._transform(value)

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch: call this before each one, as for a DistributedSampler."""
        self._epoch.fill_(operator.index(epoch))

    def position(self, index: int) -> Position:
        """Return where patch `index` of this epoch lies, without reading it."""
        return self._drawn(self._random(index))

    def _random(self, index: int) -> python_random.Random:
        number = operator.index(index)
        number += self._length if number < 0 else 0
        if not 0 <= number < self._length:
            message = f"patch {index} of {self._length}"
            raise IndexError(message)
        # A text is hashed, so that neighbouring numbers have nothing in common.
        text = f"{self._seed}/{int(self._epoch)}/{number}"
        return python_random.Random(text)  # noqa: S311 -- patches are no secret

    def _drawn(self, random: python_random.Random) -> Position:
        source = None if self._sources is None else self._sources.draw(random)[0]
        drawer: Foreground | WeightMap | None = self._weights
        if self._foreground is not None and random.random() < self._probability:
            drawer = self._foreground
        if drawer is not None and drawer.has(source):
            source, pixel = drawer.draw(random, source)
            return Position(source, self._layouts[source].around(pixel))
        if source is None:
            source, number = self._positions.draw(random)
        else:
            number = random.randrange(self._layouts[source].positions)
        return Position(source, self._layouts[source].position(int(number)))

    def _maps(self, key: Any, option: str) -> list[Map]:
        return [Map(sample.require(key, option), sample.ratios(key)) for sample in self._samples]

    def _cut(
        self, array: Any, ratios: Sequence[Fraction], layout: Layout, start: Sequence[int]
    ) -> Tensor:
        """Read a patch of one array: a copy, so that nothing done to it reaches the array."""
        slices, continued = [], []
        for axis, ratio in enumerate(ratios):
            size, first = int(layout.patch[axis] * ratio), int(start[axis] * ratio)
            length = int(layout.sizes[axis] * ratio)
            slices.append(slice(first, min(first + size, length)))
            if size > length:
                before = int(layout.margin(axis) * ratio)
                order = reflected(length, before, size - length - before, str(self._pad))
                continued.append((axis - len(ratios), order))
        part = window(array, tuple(slices))
        for axis, order in continued:
            part = part.index_select(axis, torch.tensor(order, device=part.device))
        return part.clone(memory_format=torch.contiguous_format)

    def _covering(self) -> int:
        """Return how many patches would cover the images once."""
        return sum(
            math.prod(-(-n // size) for n, size in zip(layout.sizes, layout.patch, strict=True))
            for layout in self._layouts
        )


def _sizes(patch: int | tuple[int, ...]) -> tuple[int, ...]:
    sizes = patch if isinstance(patch, tuple) else (patch, patch)
    if not sizes or any((whole_number(size) or 0) < 1 for size in sizes):
        raise SplitError(
            f"patch is {patch!r}.",
            why="it is how many pixels a patch has along each axis.",
            fix="pass patch=256, or patch=(64, 256, 256) for volumes.",
            more="patches",
        )
    return tuple(operator.index(size) for size in sizes)


def _per_source(weight: Any, sources: int) -> Ballot:
    weights = [float(w) for w in weight]
    if len(weights) != sources or not all(0 <= w < math.inf for w in weights) or not sum(weights):
        raise SplitError(
            f"weight has {len(weights)} numbers for {sources} sources.",
            why="a source is drawn in proportion to its weight: one for each, from 0 on, and not "
            "all of them 0.",
            fix="pass one number per source, or the name of an array of weights in the samples.",
            more="patches",
        )
    return Ballot.of(weights)


def _require_options(
    sources: Sequence[Any], length: int | None, foreground: float | None, pad: str | None
) -> None:
    if not len(sources):
        raise SplitError(
            "there are no sources.",
            why="patches are cut from the images in them.",
            fix="pass a list of samples: [(image, target), ...].",
            more="patches",
        )
    if length is not None and (whole_number(length) or 0) < 1:
        raise SplitError(
            f"length is {length!r}.",
            why="it is how many patches an epoch has.",
            fix="pass length=1000, or leave it out.",
            more="patches",
        )
    if foreground is not None and not 0 <= foreground <= 1:
        raise SplitError(
            f"foreground is {foreground!r}.",
            why="it is the probability that a patch lies around a labelled pixel.",
            fix="pass a number from 0 to 1.",
            more="patches",
        )
    if pad not in (None, "reflect", "edge"):
        raise SplitError(
            f"pad is {pad!r}.",
            why="it is how images smaller than the patch are continued.",
            fix='pass "reflect" or "edge".',
            more="patches",
        )


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw random numbers from a seed, in whichever library, and go on as before afterwards."""
    numpy = sys.modules.get("numpy")
    before = python_random.getstate()
    array_before = None if numpy is None else numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            python_random.seed(seed)
            if numpy is not None:
                numpy.random.seed(seed % 2**32)
            yield
    finally:
        python_random.setstate(before)
        if numpy is not None:
            numpy.random.set_state(array_before)
