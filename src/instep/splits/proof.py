"""The proof: outputs and gradient over tiles against those of the whole image, on a small one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from instep.splits.reach import smallest_proof
from instep.splits.tiles import take, tiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from instep.splits.reach import Axis
    from instep.splits.subject import Subject

AFFORDABLE = 1_000_000
"""Pixels that tiles in all directions at once may have; beyond that, each axis is proven alone."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was compared: the sizes of the image, the number of tiles, the relative errors."""

    sizes: tuple[int, ...]
    tiles: int
    error: float
    """Of the gradient."""
    output_error: float
    """Of the outputs; of labels, how many of them differ."""


def prove(
    subject: Subject, axes: Sequence[Axis | None], side: int, *, core: int = 0
) -> list[Proof]:
    """Compare on images of three tiles per axis, whose lengths have the real remainders.

    core: the size of the tiles' cores, where it is to be larger than proving anything takes.
    """
    wanted = [
        0 if axis is None else max(smallest_proof(axis), math.ceil(core / axis.align) * axis.align)
        for axis in axes
    ]
    small = [
        None if axis is None else _shortened(axis, size)
        for axis, size in zip(axes, wanted, strict=True)
    ]
    cut = [index for index, axis in enumerate(small) if axis is not None]
    together = [small]
    if len(cut) > 1 and _pixels(small, side) > AFFORDABLE:
        together = [[a if i == index else None for i, a in enumerate(small)] for index in cut]
    # Where gradients are off, nothing would be compared.
    with torch.enable_grad():
        return [_compared(subject, axes, wanted, side) for axes in together]


def _shortened(axis: Axis, core: int) -> Axis:
    length = 3 * core + axis.length % axis.align
    lengths = tuple(
        made - int(reach.scale * (axis.length - length))
        for made, reach in zip(axis.lengths, axis.reaches, strict=True)
    )
    return replace(axis, length=length, lengths=lengths)


def _pixels(axes: Sequence[Axis | None], side: int) -> int:
    return math.prod(side if axis is None else 3 * axis.length for axis in axes)


def _compared(
    subject: Subject, axes: Sequence[Axis | None], cores: Sequence[int], side: int
) -> Proof:
    sizes = tuple(side if axis is None else axis.length for axis in axes)
    images = subject.images(sizes)
    parameters = [p for p in subject.model.parameters() if p.requires_grad]
    generator = torch.Generator().manual_seed(2)
    outputs = subject.forward(images)
    weights = [
        torch.randn(made.shape, dtype=torch.float64, generator=generator).to(made.device)
        for made in outputs
    ]
    whole = _gradient(outputs, weights, parameters)
    total = [torch.zeros_like(p) for p in parameters]
    cut = tiles(axes, [max(core, 1) for core in cores])
    away = 0.0
    for tile in cut:
        parts = [
            take(image, tile.read(ratios))
            for image, ratios in zip(images, subject.ratios, strict=True)
        ]
        made = [take(m, tile.crop(k)) for k, m in enumerate(subject.forward(parts))]
        placed = [take(w, tile.placed(k)) for k, w in enumerate(weights)]
        for held, gradient in zip(total, _gradient(made, placed, parameters), strict=True):
            held.add_(gradient)
        away = max(
            away,
            *(
                _difference(m, take(o, tile.placed(k)), o)
                for k, (m, o) in enumerate(zip(made, outputs, strict=True))
            ),
        )
    return Proof(sizes, len(cut), _relative(total, whole), away)


def _gradient(
    outputs: Sequence[Tensor], weights: Sequence[Tensor], parameters: Sequence[Tensor]
) -> list[Tensor]:
    pairs = [(m, w) for m, w in zip(outputs, weights, strict=True) if m.requires_grad]
    if not pairs or not parameters:
        # Labels have no gradient, and neither have models without weights.
        return [torch.zeros_like(p) for p in parameters]
    found = torch.autograd.grad(
        [m for m, _ in pairs], parameters, [w for _, w in pairs], allow_unused=True
    )
    return [
        torch.zeros_like(p) if gradient is None else gradient
        for p, gradient in zip(parameters, found, strict=True)
    ]


def _difference(found: Tensor, expected: Tensor, whole: Tensor) -> float:
    """Return how far a tile's output is from its place in the whole, relative to all of that."""
    if found.shape != expected.shape or bool((found.isnan() != expected.isnan()).any()):
        return math.inf
    if not whole.is_floating_point():
        return float((found != expected).sum()) / max(whole.numel(), 1)
    size = float(whole.detach().nan_to_num().abs().amax()) or 1.0
    return float((found - expected).detach().nan_to_num().abs().amax()) / size


def _relative(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    size = math.sqrt(sum(float(g.square().sum()) for g in expected))
    away = sum(float((a - b).square().sum()) for a, b in zip(found, expected, strict=True))
    return math.sqrt(away) / size if size else math.sqrt(away)
