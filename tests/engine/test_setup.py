"""Parts that cannot make a right Stepper are refused before it exists."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import instep
from instep.errors import SetupError
from tests.engine.kit import mlp


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def refused(match: str, *args, **options) -> None:
    with pytest.raises(SetupError, match=match):
        instep.Stepper(*args, **options)


def test_models_and_optimizers_must_be_some():
    model = mlp()
    refused("str, not a torch.nn.Module", "model", sgd(model))
    refused("int, not a torch.nn.Module", [model, 3], sgd(model))
    refused("not an optimizer", model, model)
    refused("no optimizer was given", model, {})
    refused("no optimizer was given", model, {"a": []})
    refused("named 3", model, {3: sgd(model)})


def test_closures_are_refused():
    model = mlp()
    refused("evaluates the loss itself", model, torch.optim.LBFGS(model.parameters()))
    optimizer = sgd(model)
    lr_scheduler.StepLR(optimizer, 1)  # wraps step, and must not hide its signature
    assert instep.Stepper(model, optimizer)


@pytest.mark.parametrize("as_mapping", [True, False])
def test_a_parameter_owned_by_two_optimizers(as_mapping):
    model = mlp()
    both = [sgd(model), torch.optim.SGD([model[0].weight], lr=0.1)]
    refused("in two optimizers", model, dict(zip("ab", both, strict=True)) if as_mapping else both)


def test_a_model_on_another_device_than_its_optimizer():
    model = mlp()
    optimizer = sgd(model)
    elsewhere = copy.deepcopy(model).to("meta")
    refused("the model is on meta", elsewhere, optimizer)


def test_optimizer_state_on_another_device():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 5, dtype=torch.float64)).sum().backward()
    optimizer.step()
    state = optimizer.state[model[0].weight]
    state["exp_avg"] = state["exp_avg"].to("meta")
    refused("'0.weight' is on cpu, its exp_avg in 'optimizer' on meta", model, optimizer)


def test_schedulers():
    model = mlp()
    optimizer, stranger = sgd(model), sgd(mlp(1))
    refused(
        "ReduceLROnPlateau", model, optimizer, scheduler=lr_scheduler.ReduceLROnPlateau(optimizer)
    )
    refused("not in this stepper", model, optimizer, scheduler=lr_scheduler.StepLR(stranger, 1))
    refused("without step", model, optimizer, scheduler=[3])
    chained = lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, 10)],
        [2],
    )
    assert instep.Stepper(model, optimizer, scheduler=chained)
    by_name = {"optimizer": lr_scheduler.StepLR(optimizer, 1)}
    assert instep.Stepper(model, optimizer, scheduler=by_name)
    refused("scheduler names", model, optimizer, scheduler={"any": by_name["optimizer"]})


def test_each_scheduler_follows_its_own_optimizer():
    left, right = mlp(1), mlp(2)
    optimizers = {"left": sgd(left), "right": sgd(right)}
    schedulers = [lr_scheduler.StepLR(o, 1, gamma=0.5) for o in optimizers.values()]
    stepper = instep.Stepper([left, right], optimizers, scheduler=schedulers)
    x = torch.ones(1, 5, dtype=torch.float64)
    for _ in range(3):
        stepper.step(x, lambda x: right(x).mean(), optimizer="right")
    assert optimizers["left"].param_groups[0]["lr"] == 0.1
    assert optimizers["right"].param_groups[0]["lr"] == pytest.approx(0.1 / 8)


@pytest.mark.parametrize("option", ["clip_norm", "clip_value"])
@pytest.mark.parametrize("limit", [0, -1.0, "1", {"optimizer": 0}])
def test_limits_are_positive_numbers(option, limit):
    model = mlp()
    refused(f"{option} is", model, sgd(model), **{option: limit})


def test_options_that_do_not_fit():
    model = mlp()
    refused("both given", model, sgd(model), clip_norm=1.0, clip_value=1.0)
    refused("clip_norm names", model, sgd(model), clip_norm={"other": 1.0})
    refused("empty is", model, sgd(model), empty="ignore")
    refused("precision is", model, sgd(model), precision="half")


@pytest.mark.parametrize("name", ["DataParallel", "FullyShardedDataParallel"])
def test_models_that_average_by_themselves_are_refused(name):
    # By name, as the check goes: the real ones need a device, or a process group.
    model = type(name, (nn.Module,), {})()
    model.inner = mlp()
    refused(f"wrapped in {name}", model, sgd(model))
    refused(f"wrapped in {name}", nn.Sequential(model), sgd(model))


def test_sync_is_one_of_two():
    model = mlp()
    refused("sync is", model, sgd(model), sync="never")


def test_one_optimizer_given_twice():
    model = mlp()
    optimizer = sgd(model)
    refused("in two optimizers", model, [optimizer, optimizer])
    refused("in two optimizers", model, {"a": optimizer, "b": optimizer})


def test_numbers_of_other_libraries_are_numbers():
    model = mlp()
    stepper = instep.Stepper(model, sgd(model), clip_norm=np.float32(0.5))
    assert len(stepper.windows(range(7), size=np.int64(3))) == 3
    refused("accumulate_in is", model, sgd(model), accumulate_in="float32")
    refused("accumulate_in is", model, sgd(model), accumulate_in=torch.int32)
