"""Pieces of a batch: what a model is given of it, one after the other."""

from __future__ import annotations

import weakref
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from instep.trace import Place

_MOST_TILES, _LOOKS = 64, 32
_Shape: TypeAlias = "tuple[int, ...]"
_IMAGE = 4
"""Dimensions of a batch of images, at least: samples, channels and two of space."""


class Pieces:
    """Recognises the patches of a batch: views that leave out a part of every sample.

    They are views of the batch, or of a copy that has the same numbers in another order, as it is
    made of what `unfold` returns.

    A call is known as one of a patch when the same line was given two different parts of one
    batch. Parts along the first dimension are smaller batches: to train on them may well be meant,
    so it is only noted that there are some.
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

    def batch(self, loader: str, batch: Any = None) -> None:
        """Forget the parts of the batch before."""
        self._loader = loader
        self._images = [each.shape for each in _tensors(batch) if each.dim() >= _IMAGE]
        self.has_batch = True
        self._parts.clear()

    def loader_of(self, given: Any, place: Place | None) -> str | None:
        """Return the loader whose batch this is a patch of; None if it is none."""
        if self._loader is None or not isinstance(given, torch.Tensor):
            return None
        whole = given._base  # noqa: SLF001  # there is no public name for what a view is of
        if whole is None:
            return None
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
            self._cutting.add(place)
            if (
                self._looks < _LOOKS
                and self._loader not in self.tiled
                and (_are_all if is_copied else _are_tiles)(known[1], whole)
            ):
                self.tiled.add(self._loader)
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


def _are_all(parts: dict[int, _Shape], whole: Tensor) -> bool:
    """Say whether patches that begin at these places are together all that there is."""
    shapes = set(parts.values())
    return len(shapes) == 1 and len(parts) * prod(shapes.pop()) == whole.numel()


def _are_tiles(parts: dict[int, _Shape], whole: Tensor) -> bool:
    """Say whether parts that begin at these places are together a whole image, and none twice.

    They are to be cut out of space: not out of channels, nor out of a sequence.
    """
    if whole.dim() < _IMAGE or len(parts) > _MOST_TILES:
        return False
    if any(shape[:2] != whole.shape[:2] for shape in parts.values()):
        return False
    if sum(map(prod, parts.values())) != whole.numel() or not whole.is_contiguous():
        return False
    boxes = []
    for offset, shape in parts.items():
        starts, left = [], offset - int(whole.storage_offset())
        for stride in whole.stride():
            start, left = divmod(left, stride)
            starts.append(start)
        boxes.append([(at, at + size) for at, size in zip(starts, shape, strict=True)])
    return not any(
        all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True))
        for one, other in combinations(boxes, 2)
    )
