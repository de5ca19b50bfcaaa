"""Shards and replicas of them, on a mesh of two by two: the same update, and nobody drifts."""

from __future__ import annotations

import pytest
import torch

import instep
from instep.engine.ranks.headers import is_agreed
from instep.errors import WindowError
from tests.distributed.kit import EXACT, dealt, error, spread, told, values
from tests.engine.kit import mean_loss, mlp, train_whole

SIZES = {
    "window": [[3, 5, 1, 4, 2], [2, 7], [], [1, 1, 6]],
    # Every rank needs a batch to run along with.
    "micro-batch": [[3, 5, 1, 4, 2], [2, 7], [1], [1, 1, 6]],
}


def hybrid(sync, seed=0):
    plain = mlp(seed)
    model = spread(plain, "hsdp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return plain, instep.Stepper(model, optimizer, clip_norm=0.1, sync=sync)


def loop(stepper, data):
    updates = []
    (model,) = stepper.models
    for window in stepper.windows(data, size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
        updates += window.updates
    return updates


def trained(rank, world, sync, path):
    plain, stepper = hybrid(sync)
    updates = loop(stepper, dealt(SIZES[sync])[rank])
    found = values(plain)
    stepper.save(path)
    again, other = hybrid(sync, seed=5)
    other.load(path)
    return found, told(updates), values(again) == found


@pytest.mark.parametrize("sync", SIZES)
def test_the_update_is_that_of_one_process(four, tmp_path, sync):
    found = four.run(trained, sync, str(tmp_path / "run"))
    data = dealt(SIZES[sync])
    windows = [[batch for mine in data for batch in mine[i : i + 2]] for i in (0, 2, 4)]
    expected = train_whole(mlp(), windows, clip_norm=0.1)
    for numbers, updates, is_loaded in found:
        assert error(numbers, expected) < EXACT
        assert updates == found[0][1]
        assert is_loaded


def drifting(rank, world, when):
    _, stepper = hybrid("window", seed=int(rank == 3 and when == "from the start"))
    data = dealt(SIZES["window"])[rank]

    def change():
        if rank == 3:
            with torch.no_grad():
                for parameter in stepper.models[0].parameters():
                    parameter.to_local().mul_(1.01)

    try:
        if when == "from the start":
            loop(stepper, data)
        loop(stepper, data)
        if when == "a loop":
            change()
        for turn, window in enumerate(stepper.windows(data, size=2)):
            for x, y in window:
                window.backward(mean_loss(stepper.models[0], x, y), items=len(y))
            if turn == 0:
                change()
    except WindowError as raised:
        return raised.what, is_agreed(raised), stepper._loop.index
    return None


@pytest.mark.parametrize(("when", "windows"), [("from the start", 1), ("a loop", 3), ("now", 5)])
def test_a_replica_that_has_drifted_is_named(four, when, windows):
    # Ranks 1 and 3 hold the same shards.
    words = "rank 3 and rank 1 have different weights."
    assert four.run(drifting, when) == [(words, True, windows)] * 4
