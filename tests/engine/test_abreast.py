"""Micro-steps side by side: the gradient of micro-steps one after the other, to the last bit.

Streams and turns are in tests/gpu; here is what is left apart, and that it comes together.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import instep
from instep.engine.abreast import Streams, run_abreast
from instep.engine.flat_buffers import FlatBuffers
from tests.engine.kit import batches, mean_loss, mlp

HOST = torch.device("cpu")
SIZES = [3, 5, 1, 4]


def opened(model, accumulate_in=torch.float32):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    buffers = FlatBuffers([optimizer], accumulate_in)
    buffers.open()
    return buffers


def steps_of(model, order=()):
    def step(number):
        x, y = batches(SIZES)[number]
        mean_loss(model, x, y).backward()
        return number

    return [lambda number=number: step(number) for number in order or range(len(SIZES))]


def test_the_sums_are_those_of_one_after_the_other():
    one, other = mlp(), mlp()
    buffers = opened(one)
    assert run_abreast(steps_of(one), buffers, Streams(HOST)) == [0, 1, 2, 3]
    opened(other)
    for step in steps_of(other):
        step()
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        assert q.grad.any()
        assert torch.equal(p.grad, q.grad)
    buffers.seal()
    buffers.require_untouched()


def test_a_branch_that_raises_leaves_the_sums_where_they_were():
    model = mlp()
    buffers = opened(model)
    sums = [p.grad for p in model.parameters()]

    def broken():
        msg = "no"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="no"):
        run_abreast([*steps_of(model)[:1], broken], buffers, Streams(HOST))
    assert all(p.grad is q for p, q in zip(model.parameters(), sums, strict=True))


def test_a_parameter_that_one_branch_does_not_reach():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    x = torch.ones(1, 2)
    buffers = opened(model)
    run_abreast([lambda i=i: model[i](x).sum().backward() for i in (0, 1)], buffers, Streams(HOST))
    assert model[0].weight.grad.tolist() == model[1].weight.grad.tolist() == [[1.0, 1.0]] * 2


def test_hooks_on_sums_and_wider_sums_are_not_parted():
    model = mlp()
    assert opened(model).can_part
    assert opened(model).can_part  # hooks of other windows only take notes
    hooked = mlp()
    next(hooked.parameters()).register_post_accumulate_grad_hook(lambda p: None)
    assert not opened(hooked).can_part
    assert not opened(nn.Linear(2, 2, dtype=torch.bfloat16)).can_part


# -- zeros that are spared ---------------------------------------------------------------------


@pytest.fixture
def spared():
    """Buffers of a fused model whose first weight holds anything, and is not zeroed."""
    model = instep.fuse(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)))
    buffers = FlatBuffers([torch.optim.SGD(model.parameters(), lr=0.1)], None)
    buffers.fuse([model])
    buffers.open()
    for p in model.parameters():
        p.grad.fill_(7.0)
    buffers.close(keep=False)
    slot = buffers._slots[id(model[0].weight)]
    buffers.spare(frozenset({slot}))
    buffers.open()
    yield model, buffers
    buffers.close(keep=False)


def test_only_what_is_spared_is_left_as_it_is(spared):
    model, buffers = spared
    assert [p.grad.max().item() for p in model.parameters()] == [7.0, 0.0, 0.0, 0.0]
    buffers.close(keep=False)
    buffers.open()
    assert not any(p.grad.any() for p in model.parameters())


def test_a_group_of_which_nothing_or_all_is_spared():
    model = instep.fuse(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)))
    groups = [{"params": [p]} for p in model.parameters()]
    buffers = FlatBuffers([torch.optim.SGD(groups, lr=0.1)], None)
    buffers.fuse([model])
    buffers.open()
    for p in model.parameters():
        p.grad.fill_(7.0)
    buffers.close(keep=False)
    buffers.spare(frozenset({buffers._slots[id(model[0].weight)]}))
    buffers.open()
    assert [p.grad.max().item() for p in model.parameters()] == [7.0, 0.0, 0.0, 0.0]
    buffers.begin()
    assert not any(p.grad.any() for p in model.parameters())
    buffers.close(keep=False)


def test_who_adds_finds_zeros(spared):
    model, buffers = spared
    buffers.begin()
    assert not any(p.grad.any() for p in model.parameters())
    assert not buffers.spared


def test_who_restores_finds_zeros(spared):
    model, buffers = spared
    saved = [None, torch.ones(3), None, None]
    buffers.restore({"": saved}, None)
    assert [p.grad.max().item() for p in model.parameters()] == [0.0, 1.0, 0.0, 0.0]


def test_another_layout_spares_nothing(spared):
    model, buffers = spared
    buffers.close(keep=False)
    buffers.spare(frozenset({buffers._slots[id(model[0].weight)]}))
    buffers._optimizers[0].add_param_group({"params": nn.Linear(2, 2).parameters()})
    buffers.open()
    assert not buffers.spared
    assert not any(p.grad.any() for p in model.parameters())
