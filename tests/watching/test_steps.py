"""Steps and clears that happen inside of one another are told in the order in which they count."""

from __future__ import annotations

import pytest
import torch

import instep
from instep.trace import Opaque, Step, Zero


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.ones(3))


def told(job, *kinds):
    return [type(event).__name__ for event in job.trace if isinstance(event, kinds)]


class Clearing(torch.optim.SGD):
    def step(self, closure=None):
        done = super().step(closure)
        self.zero_grad()
        return done


def test_a_step_that_clears_is_one_step_and_then_a_clear(weight):
    with instep.watch() as job:
        optimizer = Clearing([weight], lr=0.1)
        for _ in range(2):
            weight.sum().backward()
            optimizer.step()
    assert told(job, Step, Zero) == ["Step", "Zero", "Step", "Zero"]
    assert job.findings == ()


def test_a_hook_that_clears_comes_after_the_step(weight):
    with instep.watch() as job:
        optimizer = torch.optim.SGD([weight], lr=0.1)
        optimizer.register_step_post_hook(lambda o, args, kwargs: o.zero_grad())
        for _ in range(2):
            weight.sum().backward()
            optimizer.step()
    assert told(job, Step, Zero) == ["Step", "Zero", "Step", "Zero"]


class Dropping(torch.optim.SGD):
    def step(self, closure=None):
        done = super().step(closure)
        drop(self)
        return done


class Popping(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                grad, parameter.grad = parameter.grad, None
                if grad is not None:
                    parameter.sub_(group["lr"] * grad)


class Hooked(torch.optim.SGD):
    def __init__(self, params, lr):
        super().__init__(params, lr)
        self.register_step_post_hook(drop)


def drop(optimizer, *_):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


@pytest.mark.parametrize("kind", [Dropping, Popping, Hooked])
@pytest.mark.parametrize("size", [1, 3])
def test_a_step_that_drops_gradients_is_one_step_and_then_a_clear(weight, kind, size):
    with instep.watch() as job:
        optimizer = kind([weight], lr=0.1)
        for _ in range(3):
            for _ in range(size):
                (weight.square().mean() / size).backward()
            optimizer.step()
    assert told(job, Step, Zero)[:5] == ["Step", "Zero", "Step", "Zero", "Step"]
    assert job.findings == ()


def test_a_step_that_drops_nothing_is_told_of_as_before(weight):
    with instep.watch() as job:
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            weight.sum().backward()
            optimizer.step()
    assert told(job, Zero) == []
    assert [finding.code for finding in job.findings] == ["INS101"]


def test_an_optimizer_that_steps_in_a_backward_is_left_alone(weight):
    with instep.watch() as job:
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def update(parameter):
            del parameter
            optimizer.step()
            optimizer.zero_grad()

        weight.register_post_accumulate_grad_hook(update)
        for _ in range(3):
            weight.sum().backward()
    assert job.findings == ()
    assert told(job, Step) == []
    assert told(job, Opaque)
    assert job.series.updates == {"optimizer": 3}


def test_an_error_in_a_step_leaves_nothing_behind(weight):
    with instep.watch() as job:
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def fail():
            raise KeyError

        for _ in range(2):
            weight.sum().backward()
            with pytest.raises(KeyError):
                optimizer.step(fail)
            optimizer.step()
            optimizer.zero_grad()
    assert told(job, Step) == ["Step", "Step"]


def test_a_new_optimizer_of_old_gradients_is_not_judged_by_them(weight):
    with instep.watch() as job:
        weight.sum().backward()
        for _ in range(3):
            optimizer = torch.optim.SGD([weight], lr=0.1)
            optimizer.step()
    assert job.findings == ()


def test_two_optimizers_that_step_in_one_line():
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    with instep.watch() as job:
        one, two = (torch.optim.SGD([each], lr=0.1) for each in weights)
        for _ in range(20):
            sum(weights).sum().backward()
            for each in (one, two):
                each.step()
                each.zero_grad()
    steps = [event for event in job.trace if isinstance(event, Step)]
    assert [event.optimizer for event in steps[:4]] == ["one", "two"] * 2
    assert len({id(event) for event in steps}) == 2
    assert job.series.updates == {"one": 20, "two": 20}
    assert job.findings == ()
