"""What is read from the graph of a loss."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from instep.watching.graph import read, read_from


@pytest.fixture
def outputs():
    layer = torch.nn.Linear(4, 4)
    return layer(torch.randn(6, 4)), layer(torch.randn(6, 4))


def test_a_sum_over_its_own_count_is_a_mean(outputs):
    reading = read(outputs[0].pow(2).sum() / 24 / 2)
    assert (reading.reduction, reading.items, reading.factor) == ("mean", 24, 0.5)


def test_a_sum_over_another_count_stays_a_sum(outputs):
    reading = read(outputs[0].pow(2).sum() / 96)
    assert (reading.reduction, reading.factor) == ("sum", 1 / 96)


def test_samples_that_are_compared_with_one_another(outputs):
    one, other = outputs
    logits = one @ other.T / 0.1
    assert read(F.cross_entropy(logits, torch.arange(6)) / 4).coupled


def test_a_classifier_compares_nothing(outputs):
    weight = torch.nn.Parameter(torch.randn(3, 4))
    labels = torch.zeros(6, dtype=torch.long)
    assert not read(F.cross_entropy(outputs[0] @ weight.T, labels)).coupled
    assert not read(F.cross_entropy(F.linear(outputs[0], weight), labels)).coupled
    assert not read(F.cross_entropy(outputs[0], labels)).coupled


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", ["mse_loss", "huber_loss", "smooth_l1_loss", "cross_entropy"])
def test_at_a_glance_a_loss_is_the_same_but_for_its_items(outputs, name, reduction):
    target = torch.zeros(6, dtype=torch.long) if name == "cross_entropy" else torch.zeros(6, 4)
    for _ in range(2):
        loss = getattr(F, name)(outputs[0], target, reduction=reduction)
        glance = read_from(loss.grad_fn, closely=False)
        assert glance == read(loss)._replace(items=None)
        assert glance.reduction == reduction
    assert read_from((loss / 4).grad_fn, closely=False) == glance._replace(parts=(0.25,))


def test_at_a_glance_a_loss_of_somebody_s_own_may_do_anything(outputs):
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx._saved_reduction = 1
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            return grad

    for _ in range(2):
        loss = Own.apply(outputs[0])
        assert read_from(loss.grad_fn, closely=False) == read(loss)._replace(items=None)
        del loss.grad_fn._saved_reduction
        assert read_from(loss.grad_fn, closely=False).parts is None


def test_what_somebody_has_packed_is_unknown_and_stays_packed(outputs):
    def never(packed):
        raise AssertionError

    labels = torch.tensor([0, 1, -100, 2, 3, -100])
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (tensor,), never):
        losses = [F.cross_entropy(outputs[0], labels), F.mse_loss(*outputs)]
        halved = losses[0] / 2  # a number is nothing that is packed
        weighed = losses[0] * torch.tensor(0.5)
    for loss in (*losses, halved):
        reading = read(loss)
        assert (reading.reduction, reading.items) == ("mean", None)
    assert read(halved).factor == 0.5
    assert read(weighed).factor is None
    assert read(F.cross_entropy(outputs[0], labels)).items == 4
