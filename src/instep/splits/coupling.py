"""Whether a model couples the tiles that it is run on together: tried once, on two of them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from instep.errors import SplitError
from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.splits.grids import Grid
    from instep.splits.running import Run

ROUNDING = 1e-2
"""How far apart a tile may come out alone and beside another, where other kernels run (TF32)."""


def require_independent(run: Run, grid: Grid, batch: int) -> None:
    """Raise if what the model makes of a tile depends on the tile beside it.

    Models that draw random numbers cannot be judged, and are let through.
    """
    tile, other = _two(run.view.read(0, grid.read(0)))
    with _untouched(run.model, run.device):
        alone = _first_of(run.made([tile]))
        beside = _first_of(run.made([tile, other]))
        if not _differ(alone, beside) or _differ(alone, _first_of(run.made([tile]))):
            return
        # Of another number of tiles, kernels may round otherwise; of the same number they do not.
        twins = _first_of(run.made([tile, tile]))
        if not _differ(twins, beside) and not _differ(alone, beside, ROUNDING):
            return
    raise SplitError(
        f"batch={batch} for a model that couples the tiles it is run on together.",
        why="what it makes of a tile changes with the tile beside it: statistics over the batch "
        "(BatchNorm in training mode), or something else that looks at all samples.",
        fix="leave batch out, or call model.eval() if BatchNorm is the reason.",
        more="patches",
    )


def _two(seen: Tensor) -> tuple[Tensor, Tensor]:
    """Return a tile of moderate values, and noise over the whole of their range.

    Tiles of the image itself may be all alike, and noise beyond their range no image at all.
    """
    if seen.is_complex():
        tile, other = _two(torch.view_as_real(seen))
        return torch.view_as_complex(tile), torch.view_as_complex(other)
    values = seen.double().nan_to_num(0.0, 0.0, 0.0)
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0) or float(low == 0.0)
    span = high - low
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(values.shape, generator=generator, dtype=torch.float64).to(values.device)
    tile = values.clamp(low + span / 4, high - span / 4)
    return tile.to(seen.dtype), (low + noise * span).to(seen.dtype)


def _first_of(result: Any) -> list[Tensor]:
    return [made[0] for made in tensors(result)]


def _differ(one: list[Tensor], other: list[Tensor], allowed: float | None = None) -> bool:
    return any(_distance(a, b) > _allowed(a, allowed) for a, b in zip(one, other, strict=True))


def _allowed(made: Tensor, allowed: float | None) -> float:
    dtype = made.dtype if made.is_floating_point() or made.is_complex() else torch.float32
    half = float(torch.finfo(dtype).eps ** 0.5)
    return half if allowed is None else max(half, allowed)


def _distance(one: Tensor, other: Tensor) -> float:
    """Return the largest difference, relative to the largest value; of labels, how many differ."""
    if one.shape != other.shape or not one.numel():
        return float(one.shape != other.shape)
    if not (one.is_floating_point() or one.is_complex()):
        return float((one != other).double().mean())
    a, b = one.nan_to_num(), other.nan_to_num()
    largest = max(float(a.abs().max()), float(b.abs().max()))
    return float((a - b).abs().max()) / largest if largest else 0.0


@contextlib.contextmanager
def _untouched(model: Any, device: torch.device) -> Iterator[None]:
    """Leave random numbers and what layers count in training mode as they are."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    buffers = [b for module in modules if module.training for b in module.buffers(recurse=False)]
    held = [(buffer, buffer.clone()) for buffer in buffers]
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.inference_mode():
            for buffer, before in held:
                buffer.copy_(before)
