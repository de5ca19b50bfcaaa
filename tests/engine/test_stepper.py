"""Any optimizer, any model, any iterable; and the function style."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import instep
from instep.errors import LossError
from tests.engine.kit import EXACT, batches, mean_loss, mlp, train_whole, update_error

DATA = batches([3, 2, 4, 1, 5])

OPTIMIZERS = [
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "LBFGS", "SparseAdam", "Muon")
]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_of_torch(name):
    """float64 leaves Adam-like rules their 1e-8 floor: compare updates at 1e-9."""
    make = getattr(torch.optim, name)
    start = mlp()
    model, whole = copy.deepcopy(start), copy.deepcopy(start)
    stepper = instep.Stepper(model, make(model.parameters()))
    optimizer = make(whole.parameters())
    for _ in range(3):
        for window in stepper.windows(DATA, size=5):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
        optimizer.zero_grad()
        mean_loss(
            whole, torch.cat([x for x, _ in DATA]), torch.cat([y for _, y in DATA])
        ).backward()
        optimizer.step()
    assert update_error(start, model, whole) < 1e-9


def test_fused_and_foreach_optimizers():
    for options in ({"fused": True}, {"foreach": True}, {"maximize": True}, {"amsgrad": True}):
        start = mlp(dtype=torch.float32)
        model = copy.deepcopy(start)
        stepper = instep.Stepper(model, torch.optim.AdamW(model.parameters(), **options))
        data = [(x.float(), y) for x, y in DATA]
        for window in stepper.windows(data, size=2):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
            assert window.skipped is None
        assert update_error(start, model, start) == math.inf


def test_the_users_objects_stay_plain():
    """Half the training with instep, half without, and the states interchange."""
    start = mlp()
    model, plain = copy.deepcopy(start), copy.deepcopy(start)
    optimizer = torch.optim.AdamW(model.parameters())
    stepper = instep.Stepper(model, optimizer)
    stepper.step(DATA[0], lambda batch: mean_loss(model, *batch), split=1)
    reference = torch.optim.AdamW(plain.parameters())
    reference.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    plain.load_state_dict(model.state_dict())
    stepper.step(DATA[1], lambda batch: mean_loss(model, *batch))
    mean_loss(plain, *DATA[1]).backward()
    reference.step()
    assert update_error(start, model, plain) < 1e-9


def test_data_loaders():
    x, y = torch.cat([x for x, _ in DATA]), torch.cat([y for _, y in DATA])
    loader = DataLoader(TensorDataset(x, y), batch_size=4)
    start = mlp()
    model = copy.deepcopy(start)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for window in stepper.windows(loader, size=3):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
    parts = list(loader)
    assert update_error(start, model, train_whole(start, [parts[:3], parts[3:]])) < EXACT


def test_frozen_unfrozen_added_and_tied_parameters():
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Linear(5, 3)).double()
    model[2].weight = model[0].weight
    model[3].weight.requires_grad_(False)
    whole = copy.deepcopy(model)
    start = copy.deepcopy(model)

    def groups(net):
        return [{"params": [*list(net[0].parameters()), net[2].bias, net[3].weight]}]

    optimizer = torch.optim.SGD(groups(model), lr=0.1)
    reference = torch.optim.SGD(groups(whole), lr=0.1)
    stepper = instep.Stepper(model, optimizer)
    for index, part in enumerate((DATA[:2], DATA[2:4], DATA[4:])):
        if index == 1:
            model[3].weight.requires_grad_(True)
            whole[3].weight.requires_grad_(True)
        if index == 2:
            reference.add_param_group({"params": [whole[3].bias], "lr": 0.3})
        with stepper.window() as window:
            for position, (x, y) in enumerate(part):
                if index == 1 and position == 1:
                    # In the middle of a window, with gradients from before: joins with the next.
                    optimizer.add_param_group({"params": [model[3].bias], "lr": 0.3})
                window.backward(mean_loss(model, x, y), items=len(y))
        whole.zero_grad()
        x, y = torch.cat([x for x, _ in part]), torch.cat([y for _, y in part])
        mean_loss(whole, x, y).backward()
        reference.step()
    assert update_error(start, model, whole) < EXACT


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing(reentrant):
    start = mlp()
    model = copy.deepcopy(start)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for window in stepper.windows(DATA, size=5):
        for x, y in window:
            x = x.clone().requires_grad_()
            out = checkpoint(model, x, use_reentrant=reentrant)
            window.backward(nn.functional.cross_entropy(out, y), items=len(y))
            assert x.grad is not None  # inputs get their gradients too, as from a plain backward
    assert update_error(start, model, train_whole(start, [DATA])) < EXACT


@pytest.mark.parametrize("split", [None, 1, 2, 3, 7, 100, instep.Micro(4)], ids=str)
def test_function_style_is_exact_for_every_split(split):
    x, y = torch.cat([x for x, _ in DATA]), torch.cat([y for _, y in DATA])
    y[::3] = -100
    start = mlp()
    model = copy.deepcopy(start)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    update = stepper.step(
        (x, y), lambda batch: (mean_loss(model, *batch), (batch[1] != -100).sum()), split=split
    )
    assert update.items == (y != -100).sum()
    assert update_error(start, model, train_whole(start, [[(x, y)]])) < EXACT


def test_function_style_counts_samples_by_default_and_takes_terms():
    x, _ = DATA[4]
    start = mlp()
    for loss_fn in (
        lambda net: lambda x: net(x).square().mean(),
        lambda net: lambda x: {"a": (net(x).square().mean(), len(x)), "b": (net(x).mean() * 0, 1)},
    ):
        model, whole = copy.deepcopy(start), copy.deepcopy(start)
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
        stepper.step(x, loss_fn(model), split=2)
        whole(x).square().mean().backward()
        torch.optim.SGD(whole.parameters(), lr=0.1).step()
        assert update_error(start, model, whole) < EXACT


def test_function_style_errors_change_nothing():
    model = mlp()
    start = copy.deepcopy(model)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x, _ = DATA[0]
    with pytest.raises(LossError, match="returned a int"):
        stepper.step(x, lambda x: 3)
    with pytest.raises(LossError, match="without its items"):
        stepper.step("text", lambda text: model(x).mean())
    with pytest.raises(ZeroDivisionError):
        stepper.step(x, lambda x: 1 / 0, split=1)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), start.parameters(), strict=True)
    )
    assert stepper.step(x[:0], lambda x: model(x).mean(), split=2).skipped == "empty"
    assert repr(stepper) == "Stepper(optimizer=SGD, precision='fp32')"
