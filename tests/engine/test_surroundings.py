"""What a micro-step writes to besides gradients is seen, wherever it is kept."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from instep.engine.surroundings import LARGEST, Surroundings

TOTAL = torch.zeros(1)
HELD = {"sums": [torch.zeros(1)]}


def deep_model(layer):
    model = layer
    for _ in range(12):
        model = nn.Sequential(nn.Linear(2, 2), model)
    return model


def test_running_statistics_however_deep():
    model = deep_model(nn.BatchNorm1d(2))
    around = Surroundings([model], lambda x: model(x).sum())
    assert around.changed() == []
    model(torch.randn(4, 2))
    assert any("running_mean" in name for name in around.changed())
    model.eval()
    around = Surroundings([model], lambda x: model(x).sum())
    model(torch.randn(4, 2)).sum().backward()
    assert around.changed() == []


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = torch.zeros(())

    def forward(self, x):
        self.seen += 1
        return x


class Metrics:
    def __init__(self):
        self.loss = torch.zeros(())

    def loss_fn(self, x):
        self.loss += x.sum().detach()
        return x.sum()


def add_to_global(x):
    return helper(x)


def helper(x):
    TOTAL.add_(1.0)
    return x.sum()


def add_to_container(x):
    HELD["sums"][0].add_(1.0)
    return x.sum()


def in_closure():
    total = torch.zeros(())

    def loss_fn(x):
        total.add_(x.sum().detach())
        return x.sum()

    return loss_fn


def by_default(x, total=TOTAL):
    total.mul_(2.0)
    return x.sum()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (add_to_global, "add_to_global.helper.TOTAL"),
        (add_to_container, "add_to_container.HELD.sums.0"),
        (in_closure(), "loss_fn.total"),
        (by_default, "by_default.0"),
        (Metrics().loss_fn, "loss_fn.self.loss"),
    ],
)
def test_a_tensor_that_the_function_writes_to(function, name):
    around = Surroundings([], function)
    function(torch.ones(2))
    assert around.changed() == [name]


def test_a_plain_attribute_of_a_module():
    model = deep_model(Counting())
    around = Surroundings([model], model)
    model(torch.ones(1, 2))
    (name,) = around.changed()
    assert name.endswith("seen")


def test_gradients_and_reading_are_no_change():
    model = nn.Linear(2, 2)
    weights = torch.ones(2)
    around = Surroundings([model], lambda x: (model(x) * weights).sum())
    (model(torch.ones(1, 2)) * weights).sum().backward()
    assert around.changed() == []


def test_a_data_set_is_not_looked_into():
    held = [torch.zeros(1) for _ in range(LARGEST + 1)]
    around = Surroundings([], lambda _: held)
    held[0].add_(1)
    assert around.changed() == []
