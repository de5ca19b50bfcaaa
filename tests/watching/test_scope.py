"""What is named is watched, and what is not is left alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import instep


class Pair:
    """Two models that are trained in turn, the second of them wrong: its gradients add up."""

    def __init__(self):
        self.one, self.two = nn.Linear(4, 2), nn.Linear(4, 2)
        self.first = torch.optim.SGD(self.one.parameters(), lr=0.01)
        self.second = torch.optim.SGD(self.two.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.second, 1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0)

    def train(self, updates=6):
        x, y = torch.ones(3, 4), torch.zeros(3, 2)
        for _ in range(updates):
            self.first.zero_grad()
            mse_loss(self.one(x), y).backward()
            self.first.step()
            self.scaler.scale(mse_loss(self.two(x), y)).backward()
            self.scaler.unscale_(self.second)
            self.scaler.step(self.second)
            self.scaler.update()
            self.schedule.step()


def watched(*names, start=Pair):
    pair = start()
    with instep.watch(*(getattr(pair, name) for name in names), live=False) as job:
        pair.train()
    assert job.seam.faults == []
    return job


@pytest.mark.parametrize("names", [("first",), ("one",), ("one", "first")])
def test_what_is_not_named_is_not_watched(names):
    job = watched(*names)
    assert list(job.series.updates.items()) == [("self.first", 6)]
    assert job.findings == ()
    kinds = {event.kind for event in job.trace}
    assert kinds.isdisjoint({"unscale", "schedule"})
    told = [event for event in job.trace if event.kind in {"backward", "step", "zero"}]
    assert told
    assert not any("second" in str(event) or "two" in str(event) for event in told)


@pytest.mark.parametrize("names", [("second",), ("two",), (), ("scaler",)])
def test_what_is_named_is(names):
    job = watched(*names)
    assert job.series.updates["self.second"] == 6
    assert [each.code for each in job.findings if each.code.startswith("INS1")] == ["INS101"]


def test_an_optimizer_that_is_made_later_for_a_model_that_was_named():
    one, two = nn.Linear(4, 2), nn.Linear(4, 2)
    with instep.watch(one, live=False) as job:
        first = torch.optim.SGD(one.parameters(), lr=0.01)
        second = torch.optim.SGD(two.parameters(), lr=0.01)
        for _ in range(3):
            for model, optimizer in ((one, first), (two, second)):
                optimizer.zero_grad()
                model(torch.ones(3, 4)).mean().backward()
                optimizer.step()
    assert sum(job.series.updates.values()) == 3


def test_a_group_that_comes_later():
    one, two = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(two.parameters(), lr=0.01)
    with instep.watch(one, live=False) as job:
        for update in range(4):
            if update == 2:
                optimizer.add_param_group({"params": one.parameters()})
            optimizer.zero_grad()
            (one(torch.ones(3, 4)) + two(torch.ones(3, 4))).mean().backward()
            optimizer.step()
    assert sum(job.series.updates.values()) == 2


def test_a_layer_of_the_same_model_that_somebody_else_trains():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    body = torch.optim.SGD(model[0].parameters(), lr=0.01)
    head = torch.optim.SGD(model[1].parameters(), lr=0.01)
    with instep.watch(body, live=False) as job:
        for _ in range(20):
            body.zero_grad()
            head.zero_grad()
            model(torch.ones(3, 4)).square().mean().backward()
            body.step()
            head.step()
    assert job.series.updates == {"body": 20}
    assert job.findings == ()
