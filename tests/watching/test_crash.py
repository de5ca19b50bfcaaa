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


def test_another_none_is_none_of_ours():
    nothing = None
    assert found(lambda weight: nothing.norm()) == []


def test_a_gradient_that_is_there_is_not_what_failed():
    assert found(lambda weight: weight.grad_fn.name()) == []


def test_an_optimizer_that_is_never_used_does_not_matter():
    idle = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1)
    assert [code for code, _ in found(lambda weight: weight.grad.norm())] == ["INS501"]
    assert idle.state == {}
