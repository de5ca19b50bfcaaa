"""Time of an update over patches against the whole image's, beside what the halo predicts."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import instep
from benchmarks.overhead.measure import Spread
from benchmarks.splits.networks import EXACT
from instep.splits.mosaic import Mosaic
from instep.splits.reach import halo

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Cost:
    """What patches of one network cost: pixels, seconds, and the probe that is made once."""

    side: int
    patch: int
    before: int
    after: int
    """The halo on either side."""
    theory: float
    """((patch + halo on both sides) / patch) to the power of the axes: no image ends anywhere."""
    pixels: float
    """What the tiles really read, per pixel of the image; at true borders they read less."""
    time: Spread
    probe: float
    """Seconds."""


def cost(name: str, *, rounds: int, side: int, patch: int) -> Cost:
    """Measure a network on square images, in float32; volumes are given a fourth of the side."""
    make, shape, _ = EXACT[name]
    dims = len(shape) - 2
    if dims == 3:
        side, patch = side // 4, patch // 4
    torch.manual_seed(0)
    model = make()
    image = torch.rand(1, shape[1], *(side,) * dims)
    with torch.no_grad():
        batch = (image, torch.rand_like(model(image)))
    split = instep.Patches(patch)
    begun = time.perf_counter()
    plan = split.plan(batch, [model])
    probe = time.perf_counter() - begun
    whole, cut = _updates(model, batch, None), _updates(model, batch, split)
    whole(), cut()
    axis = plan.certificate.axes[0]
    if axis is None:
        raise ValueError(f"a side of {side} is not cut into patches of {patch}")
    before, after = halo(axis)
    theory = ((patch + before + after) / patch) ** dims
    taken = [_ratio(whole, cut, turn) for turn in range(rounds)]
    return Cost(side, patch, before, after, theory, pixels(plan, side), Spread.of(taken), probe)


def pixels(plan: Mosaic, side: int) -> float:
    """Input pixels that all tiles read, per pixel of the image."""
    read = 0
    for tile in plan.tiles:
        spans = [(0, side) if span is None else span.read for span in tile.spans]
        read += math.prod(end - start for start, end in spans)
    return read / math.prod([side] * len(plan.tiles[0].spans))


def _updates(model: nn.Module, batch: Batch, split: instep.Patches | None) -> Callable[[], object]:
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.0))

    def loss_fn(piece: Batch) -> Tensor:
        return nn.functional.mse_loss(model(piece[0]), piece[1])

    return lambda: stepper.step(batch, loss_fn, split=split)


def _ratio(whole: Callable[[], object], cut: Callable[[], object], turn: int) -> float:
    """CPU time of both, in turns: what others do on the machine is not theirs."""
    if turn % 2:
        return 1 / _ratio(cut, whole, turn - 1)
    first = _seconds(whole)
    return _seconds(cut) / first


def _seconds(run: Callable[[], object]) -> float:
    begun = time.thread_time()
    run()
    return time.thread_time() - begun
