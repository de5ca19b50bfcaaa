from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import instep
from instep.engine import gradients as grads


def parameter(gradient: torch.Tensor) -> nn.Parameter:
    made = nn.Parameter(torch.zeros(gradient.shape, dtype=gradient.dtype))
    made.grad = gradient
    return made


def test_norms_of_narrow_gradients_do_not_overflow():
    huge = torch.full((100,), 60000.0, dtype=torch.float16)
    tiny = torch.full((10,), 1e-3, dtype=torch.float64)
    empty = torch.zeros(0, 3)
    found = math.hypot(*grads.to_host(grads.folded(grads.norms([huge, tiny, empty]))))
    assert found == pytest.approx(600000.0, rel=1e-6)
    assert grads.norms([empty]) == []


def test_exact_norm_tells_overflow_from_infinity():
    assert grads.exact_norm([torch.full((4,), 1e30)]) == pytest.approx(2e30, rel=1e-6)
    assert math.isnan(grads.exact_norm([torch.tensor([1.0, math.inf])]))
    assert math.isnan(grads.exact_norm([torch.tensor([1.0, math.nan])]))


def test_folding_on_a_device_keeps_the_norm(monkeypatch):
    """What a device folds is what the host would have."""
    pieces = [torch.tensor(3.0), torch.tensor(4.0)]
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    (folded,) = grads.folded(pieces)
    assert folded.item() == 5.0
    assert grads.to_host([torch.tensor(1.5), torch.tensor(2), torch.tensor(2.5)]) == [1.5, 2, 2.5]


def test_a_wider_type_is_demanded_and_taken_back():
    weight = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    wide = nn.Parameter(torch.ones(3))
    narrower = grads.narrower([weight, wide], torch.float32)
    assert len(narrower) == 1
    assert narrower[0] is weight
    assert grads.narrower([weight], None) == []
    grads.demand(narrower, torch.float32)
    (weight * 0.1).sum().backward()
    assert weight.grad.dtype == torch.float32
    grads.demand(narrower, None)
    grads.narrow(narrower)
    assert weight.grad.dtype == torch.bfloat16
    weight.grad = None
    weight.data = weight.data.float()
    weight.sum().backward()
    assert weight.grad.dtype == torch.float32


def test_clamp_and_multiply():
    gradient = torch.tensor([-3.0, 0.5, 3.0])
    grads.multiply([gradient], 2.0)
    grads.clamp([gradient], 2.0)
    assert gradient.tolist() == [-2.0, 1.0, 2.0]
    grads.multiply([], 2.0)
    grads.clamp([], 2.0)


@pytest.mark.parametrize("clip", [{"clip_norm": 0.1}, {"clip_value": 0.05}, {}], ids=str)
def test_sparse_gradients_train_like_dense_ones(clip):
    """Rows that occur twice must be added up before they are measured or clamped."""
    tables = []
    indices = [torch.tensor([0, 2, 2]), torch.tensor([2, 1])]
    for sparse in (True, False):
        torch.manual_seed(0)
        table = nn.Embedding(4, 3, sparse=sparse).double()
        stepper = instep.Stepper(table, torch.optim.SGD(table.parameters(), lr=0.5), **clip)
        with stepper.window() as window:
            for rows in indices:
                window.backward(table(rows).square().mean(), items=len(rows))
        assert window.skipped is None
        tables.append(table.weight.detach())
    torch.testing.assert_close(tables[0], tables[1], rtol=1e-12, atol=1e-14)
