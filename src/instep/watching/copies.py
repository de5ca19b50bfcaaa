"""Patches that were copied out of an image, one by one: found by the numbers that are in them.

A copy has no tie to what it was copied from. At the first batches of a loader a few rows of each
patch are therefore looked up in the image. What is on a device arrives later; nobody waits for it.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from instep.watching.boxes import MOST, are_all
from instep.watching.later import Later

if TYPE_CHECKING:
    from torch import Tensor

    from instep.trace import Place
    from instep.watching.boxes import Box

_LOOKS = 8
"""Batches at the beginning that are looked at."""
_WIDE = 64
"""Numbers of a row that are compared."""
_MOST_ALIKE = 4096
"""Places in an image at which the first number of a row may stand: more of them say nothing."""
_LARGEST = 2**24
"""Pixels of an image in which anything is looked up."""
_SPACE = 2
"""Dimensions before those of space: samples and channels."""


class _Patch(NamedTuple):
    shape: torch.Size
    dtype: torch.dtype
    rows: Later
    """The first, the middle and the last one of the first channel of the first sample."""


class _Look(NamedTuple):
    loader: str
    images: list[Tensor]
    patches: dict[Place | None, list[_Patch]]

    @property
    def is_here(self) -> bool:
        return all(each.rows.is_here for some in self.patches.values() for each in some)


class Copies:
    """Recognises patches that are copies."""

    def __init__(self) -> None:
        self.found: dict[Place | None, set[tuple[int, ...]]] = {}
        """By the line of a model's call: shapes of patches, without the samples."""
        self.tiled: set[str] = set()
        """Loaders whose images were seen to be all that such patches are of."""
        self._left = _LOOKS
        self._open: _Look | None = None
        self._waiting: _Look | None = None  # for a device

    @property
    def looks(self) -> bool:
        """Whether the batch in hand is looked at."""
        return self._open is not None

    def batch(self, loader: str, images: list[Tensor]) -> None:
        """Compare the patches of the batch before, and look at those of another one."""
        waiting, self._open = self._waiting or self._open, None
        self._waiting = None
        if waiting is not None and waiting.patches:
            if waiting.is_here:
                self._compare(waiting)
            else:
                self._waiting = waiting
        here = [each for each in images if each.device.type == "cpu" and _is_plain(each)]
        if self._left and here and loader not in self.tiled:
            self._left -= 1
            # Held, because the job itself may go on with a copy that is on a device.
            self._open = _Look(loader, here, {})

    def given(self, patch: Tensor, place: Place | None) -> None:
        """Take note of what a model is given."""
        look = self._open
        if (
            look is None
            or not _is_plain(patch)
            or not any(_fits(patch.shape, image.shape) for image in look.images)
        ):
            return
        patches = look.patches.setdefault(place, [])
        if len(patches) <= MOST:
            rows = Later(_rows(patch.detach()[0, 0]).clone())
            patches.append(_Patch(patch.shape, patch.dtype, rows))

    def is_patch(self, given: Tensor, place: Place | None) -> bool:
        """Say whether something is like patches that were recognised at the same line."""
        shapes = self.found.get(place)
        return shapes is not None and tuple(given.shape[1:]) in shapes

    def _compare(self, look: _Look) -> None:
        for place, patches in look.patches.items():
            if any(_are_of(patches, image) for image in look.images):
                self.found[place] = {tuple(each.shape[1:]) for each in patches}
                self.tiled.add(look.loader)


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_complex()


def _fits(part: Any, whole: Any) -> bool:
    return (
        len(part) == len(whole)
        and part != whole
        and part[:_SPACE] == whole[:_SPACE]
        and all(0 < small <= large for small, large in zip(part, whole, strict=True))
    )


def _rows(plane: Tensor) -> Tensor:
    """Return three rows of a patch, or as many as it has, from the first to the last."""
    rows = plane.reshape(-1, plane.shape[-1])
    return rows[:: max(1, (len(rows) - 1) // 2), :_WIDE][:3]


def _first_of_rows(size: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return where those rows begin in a patch of a size.

    >>> _first_of_rows((9, 4))
    [(0, 0), (4, 0), (8, 0)]
    """
    every = max(1, (prod(size[:-1]) - 1) // 2)
    firsts = []
    for number in range(prod(size[:-1]))[::every][:3]:
        at, left = [0], number
        for length in reversed(size[:-1]):
            left, place = divmod(left, length)
            at.insert(0, place)
        firsts.append(tuple(at))
    return firsts


def _are_of(patches: list[_Patch], image: Tensor) -> bool:
    """Say whether patches are together an image, each found at one place in it."""
    if not 1 < len(patches) <= MOST or not all(_fits(p.shape, image.shape) for p in patches):
        return False
    plane = image.detach()[0, 0]
    if plane.numel() > _LARGEST:
        return False
    # As the patches have it: they may be of fewer digits.
    plane = plane.to(patches[0].dtype).contiguous()
    boxes: list[Box] = []
    for patch in patches:
        size = tuple(patch.shape[_SPACE:])
        numbers = torch.tensor(patch.rows.numbers, dtype=plane.dtype, device="cpu")
        at = _locate(plane, numbers.reshape(-1, min(size[-1], _WIDE)), size)
        if at is None:
            return False
        boxes.append(tuple((start, start + n) for start, n in zip(at, size, strict=True)))
    return are_all(boxes, plane.shape)


def _locate(plane: Tensor, rows: Tensor, size: tuple[int, ...]) -> list[int] | None:
    """Return where a patch of a size begins that has these rows; None: nowhere, or who knows."""
    firsts = _first_of_rows(size)
    middle = len(firsts) // 2
    room = [all_ - n + 1 for all_, n in zip(plane.shape, size, strict=True)]
    region = plane[tuple(slice(at, at + n) for at, n in zip(firsts[middle], room, strict=True))]
    origins = (region == rows[middle, 0]).nonzero()
    if not 0 < len(origins) <= _MOST_ALIKE:
        return None
    flat, strides = plane.flatten(), plane.stride()
    begins = (origins * torch.tensor(strides, device="cpu")).sum(1, keepdim=True)
    along = torch.arange(rows.shape[1], device="cpu")
    same = torch.ones(len(origins), dtype=torch.bool, device="cpu")
    for first, row in zip(firsts, rows, strict=True):
        step = sum(at * stride for at, stride in zip(first, strides, strict=True))
        same &= (flat[begins + step + along] == row).all(1)
    origins = origins[same]
    return origins[0].tolist() if len(origins) == 1 else None
