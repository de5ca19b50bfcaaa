"""Pieces of a batch: what a model is given of it, one after the other."""

from __future__ import annotations

import weakref
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

from instep.watching.boxes import are_all, is_grid
from instep.watching.copies import Copies

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from instep.trace import Place
    from instep.watching.boxes import Box

_LOOKS = 32
_Shape: TypeAlias = "tuple[int, ...]"
_IMAGE = 4
"""Dimensions of a batch of images, at least: samples, channels and two of space."""


class _Whole(NamedTuple):
    """What something is that was cut up: it may be gone when all of its parts have come."""

    shape: _Shape
    stride: _Shape
    begins: int
    is_contiguous: bool

    @classmethod
    def of(cls, whole: Tensor) -> _Whole:
        begins = int(whole.storage_offset())
        return cls(whole.shape, whole.stride(), begins, whole.is_contiguous())


class _CutUp(NamedTuple):
    place: Place | None
    parts: dict[int, _Shape]
    whole: _Whole
    is_copied: bool

    @property
    def is_all(self) -> bool:
        """Whether they are together the whole, however it was cut."""
        return (_are_all if self.is_copied else _cover)(self.parts, self.whole)

    @property
    def is_tiled(self) -> bool:
        """Whether they are so, and were cut out of space."""
        return self.is_copied or _are_tiles(self.parts, self.whole)


class Pieces:
    """Recognises the patches of a batch: views that leave out a part of every sample.

    They are views of the batch, or of a copy that has the same numbers in another order, as it is
    made of what `unfold` returns, or copies themselves.

    A call is known as one of a patch when the same line was given parts of one batch that are
    together all of it, so from the next batch on: crops that are drawn at random are images of
    their own. Parts along the first dimension are smaller batches: to train on them may well be
    meant, so it is only noted that there are some.
    """

    def __init__(self) -> None:
        self._loader: str | None = None
        self.has_batch = False
        """Some loader has given one."""
        self.cut: str | None = None
        """A loader whose batches were just seen cut along their first dimension."""
        self._looks = 0  # at batches, for patches that are all of them
        self.tiled: set[str] = set()
        """Loaders whose images were seen cut into patches that are together the whole image."""
        # By what was cut and where: the shapes of its parts, by where they begin.
        self._parts: dict[tuple[int, Place | None], tuple[Any, dict[int, _Shape]]] = {}
        self._cutting: set[Place | None] = set()
        self._images: list[_Shape] = []  # shapes of those in the batch
        self._cut_up: list[_CutUp] = []
        self._copies = Copies()

    def batch(self, loader: str, batch: Any = None) -> None:
        """Forget the parts of the batch before: now all of them were seen."""
        if self._cut_up and self._loader is not None:
            whole = [each for each in self._cut_up if each.is_all]
            self._cutting.update(each.place for each in whole)
            if any(each.is_tiled for each in whole):
                self.tiled.add(self._loader)
            self._cut_up.clear()
        self._loader = loader
        images = [each for each in _tensors(batch) if each.dim() >= _IMAGE]
        self._images = [each.shape for each in images]
        self._copies.batch(loader, images)
        self.tiled |= self._copies.tiled
        self.has_batch = True
        self._parts.clear()

    def loader_of(self, given: Any, place: Place | None) -> str | None:
        """Return the loader whose batch this is a patch of; None if it is none."""
        if self._loader is None or not isinstance(given, torch.Tensor):
            return None
        whole = given._base  # noqa: SLF001  # there is no public name for what a view is of
        if whole is None:
            if self._copies.looks:
                self._copies.given(given, place)
            return self._loader if self._copies.is_patch(given, place) else None
        is_copied = given.dim() != whole.dim()
        if given.shape == whole.shape or (is_copied and not self._is_of_image(given, whole)):
            return None
        key = (id(whole), place)
        known = self._parts.get(key)
        if known is None or known[0]() is not whole:
            known = self._parts[key] = (weakref.ref(whole), {})
        known[1][int(given.storage_offset())] = given.shape
        if not is_copied and not _is_patch(given, whole):
            is_cut = len(known[1]) > 1 and given.shape[1:] == whole.shape[1:]
            self.cut = self._loader if is_cut else None
            return None
        if len(known[1]) > 1:
            self._looks += len(known[1]) == 2  # once for each batch
            is_known = place in self._cutting and self._loader in self.tiled
            if len(known[1]) == 2 and self._looks < _LOOKS and not is_known:
                self._cut_up.append(_CutUp(place, known[1], _Whole.of(whole), is_copied))
        return self._loader if place in self._cutting else None

    def _is_of_image(self, given: Tensor, whole: Tensor) -> bool:
        """Say whether something is a patch of an image, out of a copy in another order."""
        if whole.shape in self._images:
            return False  # the frames of a film, or the slices of a volume
        return any(
            whole.numel() == prod(image)
            and given.dim() == len(image)
            and given.shape[1] == image[1]
            and given.shape != image
            and all(part <= all_ for part, all_ in zip(given.shape, image, strict=True))
            for image in self._images
        )


def _tensors(batch: Any) -> Iterable[Tensor]:
    """Give the tensors of a batch: itself, or what is in it."""
    parts = batch if isinstance(batch, list | tuple) else (batch,)
    if isinstance(batch, dict):
        parts = tuple(batch.values())
    return (part for part in parts if isinstance(part, torch.Tensor))


def _is_patch(given: Tensor, whole: Tensor) -> bool:
    return (
        given.dim() == whole.dim() > 1
        and given.shape[0] == whole.shape[0]
        and given.shape != whole.shape
    )


def _are_all(parts: dict[int, _Shape], whole: _Whole) -> bool:
    """Say whether patches that begin at these places are together all that there is."""
    shapes = set(parts.values())
    return len(shapes) == 1 and len(parts) * prod(shapes.pop()) == prod(whole.shape)


def _are_tiles(parts: dict[int, _Shape], whole: _Whole) -> bool:
    """Say whether parts are cut out of space: not out of channels, nor out of a sequence."""
    if len(whole.shape) < _IMAGE or not whole.is_contiguous:
        return False
    return all(shape[:2] == whole.shape[:2] for shape in parts.values())


def _cover(parts: dict[int, _Shape], whole: _Whole) -> bool:
    """Say whether parts that begin at these places are together all that there is."""
    strides = sorted(enumerate(whole.stride), key=lambda each: each[1], reverse=True)
    boxes: list[Box] = []
    for offset, shape in parts.items():
        starts, left = [0] * len(shape), offset - whole.begins
        for dim, stride in strides:
            if whole.shape[dim] > 1 and stride:
                starts[dim], left = divmod(left, stride)
        boxes.append(tuple((at, at + size) for at, size in zip(starts, shape, strict=True)))
    return are_all(boxes, whole.shape) or is_grid(boxes, whole.shape)
