"""The trial: two tiles of the real images, read with their halo and with a larger one.

The probe looks at a copy of the model, called on made-up images. It cannot know with what arguments
the loss function calls the model, what values the images hold that switch something on, or that the
model is called on something else than the tile. All of that shows here: what a tile answers for
must not depend on how much more it reads.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.dropout import _DropoutNd

from instep.errors import SplitError
from instep.splits.reach import widened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from instep.splits.mosaic import Mosaic
    from instep.splits.tiles import Tile

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
"""How far outputs may differ, relative to the largest; narrow types get `COARSE`.

Convolutions of different sizes take different algorithms, so that float32 is not compared closely.
"""
COARSE = 0.05


def differs(mosaic: Mosaic, model: nn.Module, function: Callable[[Any], Any]) -> str | None:
    """Return what is wrong if a tile's output depends on how much it reads; None if it does not."""
    with undisturbed(model):
        if _is_random(mosaic, function):
            return None
        for tile in _chosen(mosaic):
            larger = _larger(tile, mosaic)
            if larger == tile:
                continue
            found = mosaic.outputs_of(tile, function)
            again = mosaic.outputs_of(larger, function)
            if len(found) != len(again):
                return "the model is called another number of times."
            worst = max((_distance(a, b) for a, b in zip(found, again, strict=True)), default=0.0)
            if worst > 0:
                return f"with more to read, its output differs by {worst:.1%}."
        if mosaic.is_apart and len(mosaic.tiles):
            alone = mosaic.outputs_of(mosaic.tiles[0], function)
            beside = mosaic.outputs_of(mosaic.tiles[0], function, alone=False)
            pairs = zip(alone, beside, strict=True)
            if any(_distance(a, b[: len(a)]) > 0 for a, b in pairs):
                return "an image gives another output beside other images."
    return None


def _is_random(mosaic: Mosaic, function: Callable[[Any], Any]) -> bool:
    """Whether the function draws random numbers (noise on the patch): nothing to compare then."""
    first, again = (mosaic.outputs_of(mosaic.tiles[0], function) for _ in range(2))
    return len(first) != len(again) or any(
        _distance(a, b) > 0 for a, b in zip(first, again, strict=True)
    )


def _chosen(mosaic: Mosaic) -> list[Tile]:
    """Return a tile at a corner and one in the middle: the one reads on one side, one on both."""
    axes = mosaic.certificate.axes
    middle = [
        tile
        for tile in mosaic.tiles
        if all(
            span is None or axis is None or span.core[0] <= axis.length // 2 < span.core[1]
            for span, axis in zip(tile.spans, axes, strict=True)
        )
    ]
    return list(dict.fromkeys([*mosaic.tiles[:1], *middle[:1]]))


def _larger(tile: Tile, mosaic: Mosaic) -> Tile:
    axes = mosaic.certificate.axes
    spans = tuple(
        None if span is None or axis is None else widened(span, axis)
        for span, axis in zip(tile.spans, axes, strict=True)
    )
    return replace(tile, spans=spans)


def _distance(one: Tensor, other: Tensor) -> float:
    """Return how far two outputs differ, relative to the larger; 0.0 if it may be rounding."""
    if one.shape != other.shape:
        return 1.0
    if not one.is_floating_point():
        return 0.0 if torch.equal(one, other) else 1.0
    size = float(one.detach().abs().nan_to_num().amax()) if one.numel() else 0.0
    away = (one.detach().double() - other.detach().double()).abs().nan_to_num()
    worst = float(away.amax()) if away.numel() else 0.0
    return 0.0 if worst <= TOLERANCE.get(one.dtype, COARSE) * (size or 1.0) else worst / (size or 1)


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Put random states and buffers back; dropout is off meanwhile."""
    buffers = [(b, b.clone()) for b in model.buffers()]
    dropouts = [m for m in model.modules() if isinstance(m, _DropoutNd) and m.training]
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.is_cuda})
    try:
        for module in dropouts:
            module.training = False
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            yield
    finally:
        for module in dropouts:
            module.training = True
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def refuse(what: str) -> None:
    """Raise, because patches of these images are not parts of the whole ones."""
    raise SplitError(
        f"on these images a patch is not a part of the whole: {what}",
        why="a patch that reads more around it must give the same output for its own pixels. It "
        "does not here, though the model does on made-up images: the loss function calls the model "
        "with other arguments or on something else than the patch (flipped, filtered), or the "
        "model does something for values or sizes that only real images have.",
        fix="call the model on the patch as it is, do the rest inside of the model, or pass "
        "approximate=True.",
        more="patches",
    )
