from __future__ import annotations

import pytest
import torch
from torch import nn

from instep.testing import assert_same_gradients, gradients_of

X = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).double()


def test_the_same_gradient_passes_and_leaves_the_model_alone():
    model = net()
    held = torch.ones_like(model[0].weight)
    model[0].weight.grad = held

    def whole():
        model(X).mean().backward()

    def pieces():
        for part in X.split(1):
            (model(part).mean() / 4).backward()

    assert_same_gradients(model, whole, pieces)
    assert_same_gradients(model, gradients_of(model, whole), pieces)
    assert model[0].weight.grad is held
    assert torch.equal(held, torch.ones_like(held))
    assert model[1].weight.grad is None


def test_a_different_gradient_is_named():
    model = net()

    def whole():
        model(X).mean().backward()

    def wrong():
        (model(X).mean() * 1.5).backward()

    with pytest.raises(
        AssertionError, match=r"(?s)4 of 4 parameters.*0\.weight: 5\.000e-01"
    ) as caught:
        assert_same_gradients(model, whole, wrong)
    assert "tolerance 1e-12" in str(caught.value)
    assert_same_gradients(model, whole, wrong, tolerance=0.6)


def test_nothing_to_compare_is_no_success():
    model = net()
    with pytest.raises(AssertionError, match="no gradient at all"):
        assert_same_gradients(model, lambda: None, lambda: None)
    with pytest.raises(AssertionError, match="different parameters"):
        assert_same_gradients(model, {"a": X}, {"b": X})
    with pytest.raises(AssertionError, match="differ"):
        assert_same_gradients(model, {"a": X}, {"a": X * torch.nan})
