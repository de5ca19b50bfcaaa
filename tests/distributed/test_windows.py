"""Windows on several ranks are those of one process with all their data, in float64."""

from __future__ import annotations

import pytest
import torch

import instep
from tests.distributed.kit import EXACT, dealt, error, spread, told, values
from tests.engine.kit import counted, mean_loss, mlp, train_whole

KINDS = ["ddp", "fsdp"]


def train(rank, world, kind, sizes, size, options=None, ignore=()):
    plain = mlp()
    model = spread(plain, kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    group = torch.distributed.group.WORLD if kind == "plain" else None
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler, group=group, **(options or {}))
    updates = []
    for window in stepper.windows(dealt(sizes, ignore=ignore)[rank], size=size):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=counted(y))
        updates += window.updates
    return values(plain), told(updates), scheduler.last_epoch


def reference(sizes, size, *, ignore=(), **options):
    """The same data in one process: windows of what all ranks have in theirs."""
    data = dealt(sizes, ignore=ignore)
    count = max(-(-len(mine) // size) for mine in data)
    windows = [
        [batch for mine in data for batch in mine[i * size : (i + 1) * size]] for i in range(count)
    ]
    model = mlp()
    for index, window in enumerate(windows):
        model = train_whole(model, [window], lr=0.1 * 0.5**index, **options)
    return model, count


RAGGED = {
    "uneven tokens": [[3, 5, 1, 4], [2, 7, 6, 1], [8, 1, 1, 1]],
    "uneven micro-batches": [[3, 5, 1, 4, 2], [2], [4, 4, 1]],
    "an empty window": [[3, 5, 2, 2], [4, 2], [1, 1, 5, 6]],
    "an empty loader": [[3, 5, 1], [], [2]],
}


@pytest.mark.parametrize("kind", [*KINDS, "plain"])
@pytest.mark.parametrize("name", RAGGED)
def test_the_update_is_that_of_one_process(crew, kind, name):
    sizes = RAGGED[name][: crew.world]
    found = crew.run(train, kind, sizes, 2)
    expected, count = reference(sizes, 2)
    for numbers, updates, epochs in found:
        assert error(numbers, expected) < EXACT
        assert updates == found[0][1]
        assert len(updates) == epochs == count
