from __future__ import annotations

import torch
from torch import nn

from instep.engine import transaction
from instep.engine.stepper import Stepper
from instep.engine.transaction import Kept, Transaction


def test_buffers_come_back_whatever_a_module_did_to_them():
    model = nn.BatchNorm1d(2)
    model.register_buffer("table", torch.zeros(3))
    model.register_buffer("none", None)
    stepper = Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    lane = stepper._core.lane(None)
    lane.references = {"loss": 4.0}
    before = Transaction(stepper._loop, lane, [model], torch.ones(3, 2), Kept())
    table = model.table
    model(torch.randn(4, 2))
    model.table = torch.ones(7)
    table.fill_(9)
    lane.references["loss"] = 8.0
    stepper._loop.index = 5
    drawn = torch.rand(2)
    before.roll_back()
    assert model.table is table
    assert torch.equal(table, torch.zeros(3))
    assert torch.equal(model.running_mean, torch.zeros(2))
    assert model.num_batches_tracked == 0
    assert lane.references == {"loss": 4.0}
    assert stepper._loop.index == 0
    assert not torch.equal(torch.rand(2), drawn)  # randn came before it


def test_large_buffers_are_copied_only_when_they_change(monkeypatch):
    monkeypatch.setattr(transaction, "LARGE", 100)
    kept = Kept()
    large, small = torch.zeros(100), torch.zeros(2)
    assert kept.copy(small) is not kept.copy(small)
    first = kept.copy(large)
    assert kept.copy(large) is first
    large.add_(1)
    second = kept.copy(large)
    assert second is not first
    assert torch.equal(second, torch.ones(100))
    kept.keep_only([small])
    assert kept.copy(large) is not second
