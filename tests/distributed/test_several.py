"""Several optimizers with windows of their own, on ranks whose loaders end at different times."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import instep
from tests.distributed.kit import EXACT, dealt, error, spread, told, values
from tests.engine.kit import mlp


def models():
    return mlp(0, inputs=5, outputs=5), mlp(1, inputs=5, outputs=1)


def play(wrapped, stepper, windows, parts, *, by_hand=False):
    """One epoch; `parts(batch)` are the pieces that a batch is made of."""
    generator, critic = wrapped
    updates = []
    drawn = 0
    for window in windows:
        for batch in window:
            for x, _ in parts(batch):
                loss = critic(generator(x)).square().mean() + critic(x).mean()
                window.backward(loss, items=len(x), optimizer="c")
            drawn += 1
            # At the end of a loader only one process knows that the last batch is the last of all.
            assert not stepper.ranks.world > 1 or window.due("c") == (drawn % 3 == 0)
            if by_hand and drawn % 3 == 0:
                window.close("c")
            for x, _ in parts(batch):
                loss = (critic(generator(x)) - 1.0).square().mean()
                window.backward(loss, items=len(x), optimizer="g")
        updates += window.updates
    return told(updates)


def build(wrapped, **options):
    generator, critic = wrapped
    optimizers = {
        "g": torch.optim.AdamW(generator.parameters(), lr=0.01),
        "c": torch.optim.SGD(critic.parameters(), lr=0.05),
    }
    schedulers = {
        name: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
        for name, optimizer in optimizers.items()
    }
    return instep.Stepper(list(wrapped), optimizers, scheduler=schedulers, **options)


def train(rank, world, kind, sizes, size, by_hand):
    plain = models()
    wrapped = [spread(model, kind) for model in plain]
    stepper = build(wrapped, clip_norm={"g": 0.05})
    windows = stepper.windows(dealt(sizes)[rank], size=size)
    updates = play(wrapped, stepper, windows, lambda batch: [batch], by_hand=by_hand)
    return [values(model) for model in plain], updates


def alone(sizes, size, by_hand):
    """One process: each of its micro-batches is made of what the ranks have in theirs."""
    found = models()
    stepper = build(found, clip_norm={"g": 0.05})
    places = itertools.zip_longest(*dealt(sizes))
    loader = [[batch for batch in place if batch is not None] for place in places]
    windows = stepper.windows(loader, size=size)
    return found, play(found, stepper, windows, lambda batch: batch, by_hand=by_hand)


ENDS = {
    "together": [[3, 4, 1, 2, 2, 1, 3], [2, 2, 2, 1, 1, 3, 1]],
    "in a frame": [[3, 4, 1, 2], [2]],
    "between frames": [[3, 4, 1, 2, 5, 1, 2, 2], [2, 3, 1]],
    "not at all": [[], [2, 3, 1]],
}


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("by_hand", [False, True])
def test_each_updates_as_in_one_process(two, kind, name, by_hand):
    size = {"g": 2, "c": 3}
    found = two.run(train, kind, ENDS[name], size, by_hand)
    expected, updates = alone(ENDS[name], size, by_hand)
    for numbers, own in found:
        for mine, whole, start in zip(numbers, expected, models(), strict=True):
            assert error(mine, whole, start) < EXACT
        assert own == found[0][1]
        assert [u[0] for u in own] == [u[0] for u in updates]
        for one, other in zip(own, updates, strict=True):
            assert one[1:4] == pytest.approx(other[1:4], rel=1e-12)


@pytest.mark.parametrize("sizes", [[[3, 4, 1], [2, 2, 2, 1, 1]], [[], [3]]])
def test_all_that_are_open_on_one_rank_alone_close_at_its_end(two, sizes):
    """The other one opens them at once: to gather after a close would be for that rank alone."""
    size = {"g": 2, "c": 3}
    expected, updates = alone(sizes, size, False)
    for numbers, own in two.run(train, "fsdp", sizes, size, False):
        for mine, whole, start in zip(numbers, expected, models(), strict=True):
            assert error(mine, whole, start) < EXACT
        assert [u[0] for u in own] == [u[0] for u in updates]


def together(rank, world, kind):
    plain = models()
    wrapped = [spread(model, kind) for model in plain]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in wrapped]
    stepper = instep.Stepper(wrapped, optimizers, clip_norm=0.1)
    update = stepper.step(
        dealt([[4], [7]])[rank][0],
        lambda batch: (wrapped[1](wrapped[0](batch[0])).square().mean(), len(batch[0])),
        split=3,
    )
    return [values(model) for model in plain], told([update])


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_list_updates_together(two, kind):
    found = two.run(together, kind)
    generator, critic = models()
    x = torch.cat([x for mine in dealt([[4], [7]]) for x, _ in mine])
    critic(generator(x)).square().mean().backward()
    parameters = [*generator.parameters(), *critic.parameters()]
    nn.utils.clip_grad_norm_(parameters, 0.1)
    torch.optim.SGD(parameters, lr=0.1).step()
    for numbers, own in found:
        for mine, whole, start in zip(numbers, (generator, critic), models(), strict=True):
            assert error(mine, whole, start) < EXACT
        assert own == found[0][1]


def by_hand_unequal(rank, world, kind):
    """Windows opened by hand, in which each rank uses one of two optimizers, or none."""
    plain = models()
    wrapped = [spread(model, kind) for model in plain]
    stepper = build(wrapped)
    with stepper.window() as window:
        if rank == 0:
            x = dealt([[4], [7], [1]])[0][0][0]
            window.backward(wrapped[0](x).square().mean(), items=4, optimizer="g")
        if rank == 1:
            x = dealt([[4], [7], [1]])[1][0][0]
            window.backward(wrapped[1](x).square().mean(), items=7, optimizer="c")
    return [values(model) for model in plain], told(window.updates)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_ranks_that_use_different_optimizers(three, kind):
    found = three.run(by_hand_unequal, kind)
    for numbers, own in found:
        assert numbers == found[0][0]
        assert own == found[0][1]
        assert [(u[0], u[2], u[4]) for u in own] == [("g", 4.0, None), ("c", 7.0, None)]
