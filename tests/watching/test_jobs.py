"""Jobs that are not the plain loop: optimizers of others, closures, generators and the like."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from tests.peers.kit import loader, loss_of, net, watched


class Sign(Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad.sign(), alpha=-group["lr"])


class Perturbing(Optimizer):
    """Takes two backwards for an update, as SAM does."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(parameter.grad, alpha=0.05)
        self.zero_grad()

    def step(self, closure: Any = None) -> None:
        self.base.step()


class Wrapping(Optimizer):
    """Holds another optimizer and shares its groups, as those of frameworks do."""

    def __init__(self, base: Optimizer) -> None:
        super().__init__(base.param_groups, base.defaults)
        self.base, self.param_groups = base, base.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.base.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:
        self.base.step(closure)


def plain(make: Callable[[Any], Optimizer], *, clears: bool = True) -> nn.Module:
    model = net()
    optimizer = make(model.parameters())
    for _ in range(3):
        for x, y in loader():
            loss_of(model, x, y).backward()
            optimizer.step()
            if clears:
                optimizer.zero_grad()
    return model


def wrapped(params: Any) -> Optimizer:
    return Wrapping(torch.optim.Adam(params))


@pytest.mark.parametrize("make", [Sign, wrapped])
def test_an_optimizer_of_somebody_else(make):
    assert watched(lambda: plain(make)) == []
    line = "loss_of(model, x, y).backward()"
    assert watched(lambda: plain(make, clears=False)) == [("INS101", line)]


def test_an_optimizer_that_moves_weights_between_two_backwards():
    def job() -> nn.Module:
        model = net()
        optimizer = Perturbing(model.parameters())
        for _ in range(3):
            for x, y in loader():
                loss_of(model, x, y).backward()
                optimizer.first_step()
                loss_of(model, x, y).backward()
                optimizer.step()
                optimizer.zero_grad()
        return model

    assert watched(job) == []


def closed(kind: type[Optimizer], *, clears: bool = True) -> nn.Module:
    model = net()
    optimizer = kind(model.parameters())
    for _ in range(3):
        for x, y in loader():

            def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                if clears:
                    optimizer.zero_grad()
                loss = loss_of(model, x, y)
                loss.backward()
                return loss

            optimizer.step(closure)
    return model


def test_closures():
    assert watched(lambda: closed(torch.optim.LBFGS)) == []
    assert watched(lambda: closed(torch.optim.Adam)) == []
    found = watched(lambda: closed(torch.optim.Adam, clears=False))
    assert found == [("INS101", "loss.backward()")]


def test_a_step_that_failed_hides_no_later_one():
    def job() -> nn.Module:
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        for index, (x, y) in enumerate(loader()):
            loss_of(model, x, y).backward()
            if index == 2:
                with pytest.raises(ZeroDivisionError):
                    optimizer.step(lambda: 1 // 0)
            optimizer.step()
        return model

    assert watched(job) == [("INS101", "loss_of(model, x, y).backward()")]


def adversarial(*, clears: bool = True) -> nn.Module:
    torch.manual_seed(0)
    maker, critic = nn.Linear(4, 8), nn.Linear(8, 1)
    makes = torch.optim.Adam(maker.parameters())
    judges = torch.optim.Adam(critic.parameters())
    for _ in range(3):
        for x, _ in loader():
            fake = maker(torch.randn(2, 4))
            judges.zero_grad()
            (critic(fake.detach()).mean() - critic(x).mean()).backward()
            judges.step()
            with torch.no_grad():
                for parameter in critic.parameters():
                    parameter.clamp_(-0.1, 0.1)
            if clears:
                makes.zero_grad()
            (-critic(fake).mean()).backward()
            makes.step()
    return nn.ModuleList([maker, critic])


def test_several_optimizers():
    assert watched(adversarial) == []
    found = watched(lambda: adversarial(clears=False))
    assert found == [("INS101", "(-critic(fake).mean()).backward()")]


def test_a_copy_that_follows():
    def job() -> nn.Module:
        model = net()
        average = copy.deepcopy(model).requires_grad_(False)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            for x, y in loader():
                optimizer.zero_grad()
                loss_of(model, x, y).backward()
                optimizer.step()
                for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                    slow.lerp_(fast.detach(), 0.1)
            average.eval()
        return model

    assert watched(job) == []


def accumulated(
    call: Callable[[nn.Module, Tensor], Tensor], *, divides: bool = True, batches: Any = loader
) -> nn.Module:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        for index, (x, y) in enumerate(batches()):
            loss = F.cross_entropy(call(model, x), y)
            if divides:
                loss = loss / 4
            loss.backward()
            if (index + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    return model


def ahead() -> Iterator[Any]:
    """Ask for a batch before the one in hand is given."""
    waiting: list[Any] = []
    for batch in loader():
        if waiting:
            yield waiting.pop()
        waiting.append(batch)
    yield from waiting


def made() -> Iterator[Any]:
    drawn = torch.Generator().manual_seed(0)
    for _ in range(8):
        yield torch.randn(2, 8, generator=drawn), torch.randint(0, 3, (2,), generator=drawn)


CALLS = {
    "checkpoint": lambda model, x: checkpoint(model, x, use_reentrant=False),
    "reentrant": lambda model, x: checkpoint(model, x.requires_grad_(), use_reentrant=True),
    "functional": lambda model, x: functional_call(model, dict(model.named_parameters()), (x,)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_other_ways_to_call_a_model(call):
    assert watched(lambda: accumulated(call)) == []
    assert watched(lambda: accumulated(call, divides=False)) == [("INS201", "loss.backward()")]


@pytest.mark.parametrize("batches", [ahead, made])
def test_generators_as_loaders(batches):
    call = nn.Module.__call__
    assert watched(lambda: accumulated(call, batches=batches)) == []
    found = watched(lambda: accumulated(call, divides=False, batches=batches))
    assert found == [("INS201", "loss.backward()")]


@pytest.mark.parametrize("size", [2, 3])
def test_windows_that_are_drawn_at_once(size):
    def job(*, divides: bool) -> nn.Module:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            batches = ahead()
            while window := [*itertools.islice(batches, size)]:
                for x, y in window:
                    loss = F.cross_entropy(model(x), y)
                    (loss / len(window) if divides else loss).backward()
                optimizer.step()
                optimizer.zero_grad()
        return model

    assert watched(lambda: job(divides=True)) == []
    found = watched(lambda: job(divides=False))
    assert found == [("INS201", "(loss / len(window) if divides else loss).backward()")]


@pytest.mark.parametrize(("drawn", "losses"), [(2, 3), (3, 2), (2, 1), (1, 2), (3, 4), (5, 4)])
def test_several_batches_for_several_losses(drawn, losses):
    def job() -> nn.Module:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            batches = iter(loader())
            while group := [*itertools.islice(batches, drawn)]:
                for index in range(losses):
                    x, y = group[index % len(group)]
                    (loss_of(model, x, y) + loss_of(model, *group[0])).backward()
                optimizer.step()
                optimizer.zero_grad()
        return model

    assert watched(job) == []


def joined(loss_fns: int, batches: Iterator[Any]) -> nn.Module:
    """Make one thing of two batches, and go backward for several losses of it."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (one, y), (other, z) in zip(batches, batches, strict=False):
        out = model(torch.cat([one, other]))
        optimizer.zero_grad()
        for index in range(loss_fns):
            loss = F.cross_entropy(out, torch.cat([y, z])) if index else out.pow(2).mean()
            loss.backward(retain_graph=True)
        optimizer.step()
    return model


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_several_losses_of_batches_that_were_joined(losses):
    def job() -> nn.Module:
        return joined(losses, itertools.chain.from_iterable(iter(loader()) for _ in range(3)))

    assert watched(job) == []


def test_a_buffer_that_fills_up_at_first():
    def job() -> nn.Module:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = itertools.chain.from_iterable(iter(loader()) for _ in range(20))
        waiting = [next(batches)]
        for _ in range(30):
            x, y = waiting.pop(0)
            out = model(x)
            optimizer.zero_grad()
            F.cross_entropy(out, y).backward(retain_graph=True)
            F.multi_margin_loss(out, y).backward()
            optimizer.step()
            waiting += [next(batches) for _ in range(2 if len(waiting) < 8 else 1)]
        return model

    assert watched(job) == []


def test_means_that_are_weighted_by_their_size():
    data = TensorDataset(torch.randn(28, 8), torch.randint(0, 3, (28,)))

    def job(*, weighs: bool) -> nn.Module:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            batches = iter(DataLoader(data, batch_size=8))
            while window := [*itertools.islice(batches, 2)]:
                items = sum(len(y) for _, y in window)
                optimizer.zero_grad()
                for x, y in window:
                    share = len(y) / items if weighs else 1 / len(window)
                    (F.cross_entropy(model(x), y) * share).backward()
                optimizer.step()
        return model

    assert watched(lambda: job(weighs=True)) == []
    assert [code for code, _ in watched(lambda: job(weighs=False))] == ["INS203"]


def test_steps_inside_of_a_backward():
    def job() -> nn.Module:
        model = net()
        each = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def update(parameter: nn.Parameter) -> None:
            each[parameter].step()
            each[parameter].zero_grad()

        hooks = [p.register_post_accumulate_grad_hook(update) for p in model.parameters()]
        for x, y in loader():
            loss_of(model, x, y).backward()
        for hook in hooks:
            hook.remove()
        return model

    assert watched(job) == []
