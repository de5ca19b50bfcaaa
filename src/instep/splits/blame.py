"""Which module it was: the first one whose output no longer follows from its own surroundings."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from instep.splits.subject import Subject


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one module inside the model."""

    name: str
    module: nn.Module
    inputs: list[Tensor]
    outputs: list[Tensor]


def who_looks_everywhere(subject: Subject, axis: int, side: int, size: int) -> str:
    """Name the first module whose output takes up a NaN from the other end of the image."""
    sizes = [side] * subject.dims
    sizes[axis] = size
    images = [image.clone() for image in subject.images(sizes)]
    for part in subject.cut(images, axis, size // 2, size):
        if part.is_floating_point():
            part.fill_(math.nan)
    with _recorded(subject.model) as calls:
        subject.outputs(images)
    dim = axis - subject.dims
    for call in calls:
        touched = any(_is_touched(t, dim, subject.dims) for t in call.inputs)
        if not touched and any(_is_touched(t, dim, subject.dims) for t in call.outputs):
            return _named(call.name, call.module)
    return f"`{type(subject.model).__name__}`"


def who_depends_on_place(subject: Subject, axis: int, side: int, size: int, cut: int) -> str:
    """Name the first module that makes something else of a tile than of its place in the whole."""
    sizes = [side] * subject.dims
    sizes[axis] = size
    images = subject.images(sizes)
    with _recorded(subject.model) as whole:
        subject.outputs(images)
    with _recorded(subject.model) as tile:
        subject.outputs(subject.cut(images, axis, cut, size))
    place = _Cut(axis - subject.dims, subject.dims, size, cut)
    if [call.name for call in whole] == [call.name for call in tile]:
        pairs = list(zip(whole, tile, strict=True))
        called = {call.name for call in whole}
        differing = {
            entire.name for entire, part in pairs if not _agree(entire.inputs, part.inputs, place)
        }
        for entire, part in pairs:
            if not _agree(entire.outputs, part.outputs, place):
                # What is done in a forward itself shows first in the module that is called next.
                owner = entire.name
                while owner and (owner in differing or owner not in called):
                    owner = owner.rpartition(".")[0]
                return _named(owner, subject.model.get_submodule(owner))
    return f"`{type(subject.model).__name__}`"


def _named(name: str, module: nn.Module) -> str:
    kind = type(module).__name__
    return f"`{name}` ({kind})" if name else f"the forward of `{kind}`"


@contextlib.contextmanager
def _recorded(model: nn.Module) -> Iterator[list[Call]]:
    """Record the calls inside the model in the order in which they end."""
    calls: list[Call] = []
    handles = []

    def watch(name: str) -> Any:
        def note(module: nn.Module, args: Any, result: Any) -> None:
            calls.append(Call(name, module, list(tensors(args)), list(tensors(result))))

        return note

    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(watch(name)))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _is_touched(tensor: Tensor, dim: int, dims: int) -> bool:
    """Whether a NaN from the far end has come to this end, or to where there are no ends."""
    if not tensor.is_floating_point() or not tensor.numel():
        return False
    if tensor.dim() <= dims or tensor.shape[dim] == 1:
        return bool(tensor.isnan().any())
    return bool(tensor.select(dim, 0).isnan().any())


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where a tile was cut out of an image, to find its place in everything made of that image."""

    dim: int
    dims: int
    size: int
    start: int


def _agree(whole: Sequence[Tensor], tile: Sequence[Tensor], cut: _Cut) -> bool:
    """Whether a tile's tensors are the whole's in the middle of the tile."""
    for entire, part in zip(whole, tile, strict=False):
        if entire.dim() <= cut.dims or not entire.is_floating_point():
            continue
        length = entire.shape[cut.dim]
        if (length * cut.start) % cut.size or length < 8:
            continue
        shift = length * cut.start // cut.size
        middle = (length - shift) // 4
        wanted = entire.narrow(cut.dim, shift + middle, 2 * middle)
        if part.shape[cut.dim] < 3 * middle:
            return False
        found = part.narrow(cut.dim, middle, 2 * middle)
        if found.shape != wanted.shape:
            return False
        tolerance = 1e-11 * (float(wanted.abs().amax()) or 1.0) if wanted.numel() else 0.0
        if wanted.numel() and not bool(((found - wanted).abs() <= tolerance).all()):
            return False
    return True
