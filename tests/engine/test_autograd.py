"""The short way into torch's engine must do what the public way does, bit for bit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from instep.engine import autograd
from tests.engine.kit import mlp


def gradients(run, model):
    run()
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    return found


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_same_as_the_public_function(inputs, count):
    model = mlp()
    x = torch.randn(4, 5, dtype=torch.float64)
    calls = []
    model[0].weight.register_post_accumulate_grad_hook(calls.append)
    chosen = list(model[0].parameters()) if inputs else None

    def run(function):
        out = model(x)
        losses = [out.square().mean(), out.mean()][:count]
        seeds = [torch.tensor(0.25, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)]
        function(losses, seeds[:count])

    ours = gradients(
        lambda: run(lambda loss, s: autograd.backward(loss, s, retain_graph=False, inputs=chosen)),
        model,
    )
    public = gradients(
        lambda: run(lambda loss, s: torch.autograd.backward(loss, s, inputs=chosen)), model
    )
    for one, other in zip(ours, public, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)
    assert len(calls) == 2


def test_the_graph_is_kept_only_if_asked():
    weight = nn.Parameter(torch.ones(2))
    loss = weight.square().sum()
    seed = [torch.tensor(1.0)]
    autograd.backward([loss], seed, retain_graph=True, inputs=None)
    autograd.backward([loss], seed, retain_graph=False, inputs=None)
    assert torch.equal(weight.grad, torch.full((2,), 4.0))
    with pytest.raises(RuntimeError, match="second time"):
        autograd.backward([loss], seed, retain_graph=False, inputs=None)


class Marked(torch.Tensor):
    """A subclass, which may redefine what backward means."""


@pytest.mark.parametrize("why", ["subclass", "absent"])
def test_everything_unusual_takes_the_public_way(why, monkeypatch):
    called = []
    public = torch.autograd.backward
    monkeypatch.setattr(
        torch.autograd, "backward", lambda *a, **k: called.append(1) or public(*a, **k)
    )
    weight = nn.Parameter(torch.ones(2))
    loss = weight.sum()
    if why == "subclass":
        loss = loss.as_subclass(Marked)
    else:
        monkeypatch.setattr(autograd, "_engine", None)
    autograd.backward([loss], [torch.tensor(2.0)], retain_graph=False, inputs=None)
    assert called
    assert torch.equal(weight.grad.as_subclass(torch.Tensor), torch.full((2,), 2.0))


def test_this_torch_has_the_short_way():
    """If this fails on a new torch, everything still works, and slower: look at autograd.py."""
    assert autograd._engine is not None
    assert copy.copy(autograd._transforms_active)() is False
