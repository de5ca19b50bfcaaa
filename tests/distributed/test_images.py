"""Images cut into patches on several ranks: the update of one process with all images."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import instep
from tests.distributed.crew import RankError
from tests.distributed.kit import EXACT, error, spread, values


def network():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 2, 3, padding=1), nn.Tanh(), nn.Conv2d(2, 1, 3, padding=1)
    return nn.Sequential(*layers).double()


def images(seed=1):
    """A batch for each rank, of two images and of one."""
    generator = torch.Generator().manual_seed(seed)
    make = lambda n: torch.randn(n, 1, 12, 14, dtype=torch.float64, generator=generator)
    return [(make(n), make(n)) for n in (2, 1, 1)]


def train(rank, world, kind, options):
    plain = network()
    model = spread(plain, kind)
    group = torch.distributed.group.WORLD if kind == "plain" else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer, group=group)
    loss = lambda piece: (model(piece[0]) - piece[1]).square().mean()
    update = stepper.step(images()[rank], loss, split=instep.Patches(8, **options))
    return values(plain), update.items


@pytest.mark.parametrize("kind", ["ddp", "plain"])
@pytest.mark.parametrize("options", [{}, {"halo": 2}, {"images": 1}])
def test_patches_are_those_of_one_process(two, kind, options):
    expected = network()
    x, y = (torch.cat(part) for part in zip(*images()[:2], strict=True))
    (expected(x) - y).square().mean().backward()
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    for numbers, items in two.run(train, kind, options):
        assert items == y.numel()
        assert error(numbers, expected, network()) < EXACT


def test_patches_of_a_sharded_model_are_refused(two):
    with pytest.raises(RankError) as caught:
        two.run(train, "fsdp", {})
    for text in caught.value.errors:
        assert text.startswith("split=instep.Patches(...) with a model that fully_shard has cut.")
        assert "instep explain ranks" in text


def test_independent_patches_of_a_sharded_model(two):
    found = two.run(train, "fsdp", {"halo": 0})
    assert found == two.run(train, "ddp", {"halo": 0})
