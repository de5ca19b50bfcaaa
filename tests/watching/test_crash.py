"""A job that ends because a gradient is None is told so."""

from __future__ import annotations

import pytest
import torch

import instep


def train(look):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    look(weight)


def found(look):
    job = instep.watch(live=False)
    with pytest.raises((AttributeError, TypeError)), job:
        train(look)
    return [(finding.code, finding.place.line) for finding in job.findings]


@pytest.mark.parametrize(
    "look", [lambda weight: weight.grad.norm(), lambda weight: weight.grad * 2]
)
def test_the_line_that_looked(look):
    assert found(look) == [("INS501", look.__code__.co_firstlineno)]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.rest = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, x, *, whole):
        return self.used(x) + (self.rest(x) if whole else 0)


def ended(look, *, whole_until=0):
    job, model = instep.watch(live=False), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises((AttributeError, TypeError)), job:
        for update in range(6):
            optimizer.zero_grad()
            model(torch.ones(2, 3), whole=update < whole_until).sum().backward()
            look(model)
            optimizer.step()
    return [(finding.code, finding.place.line, finding.message) for finding in job.findings]


def halve(model):
    for p in model.parameters():
        p.grad.mul_(0.5)


def total(model):
    return sum(p.grad.norm() for p in model.parameters())


@pytest.mark.parametrize("look", [halve, total])
@pytest.mark.parametrize("whole_until", [0, 4])
def test_a_parameter_that_no_loss_reaches(look, whole_until):
    lines = {halve: 2, total: 1}
    ((code, line, message),) = ended(look, whole_until=whole_until)
    assert (code, line) == ("INS501", look.__code__.co_firstlineno + lines[look])
    assert "the gradient of `model.rest.weight` is None here" in message


def test_another_none_beside_a_parameter_without_a_gradient():
    nothing, p = None, torch.nn.Parameter(torch.ones(3))

    def look(model):
        q = model.rest.weight
        return q.requires_grad, p.grad, nothing.norm(), model.used.weight.grad

    assert ended(look) == []


def test_another_none_is_none_of_ours():
    nothing = None
    assert found(lambda weight: nothing.norm()) == []


def test_a_gradient_that_is_there_is_not_what_failed():
    assert found(lambda weight: weight.grad_fn.name()) == []


def test_an_optimizer_that_is_never_used_does_not_matter():
    idle = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1)
    assert [code for code, _ in found(lambda weight: weight.grad.norm())] == ["INS501"]
    assert idle.state == {}
