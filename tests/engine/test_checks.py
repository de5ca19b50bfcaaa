from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from instep.engine.checks import count_of, host_count, host_weight, scalar_loss
from instep.errors import ItemsError, LossError
from tests.engine.kit import pretend_device

LEAF = torch.ones(3, requires_grad=True)


@pytest.mark.parametrize(
    ("loss", "what"),
    [
        (1.5, "float, not a tensor"),
        (None, "NoneType, not a tensor"),
        (LEAF * 2, r"shape \(3,\)"),
        (torch.ones(()), "no graph"),
        (LEAF.sum().detach(), "no graph"),
        (LEAF.sum().to(torch.complex64), "complex64"),
        (LEAF[:0], r"shape \(0,\)"),
    ],
)
def test_losses_that_are_none(loss, what):
    with pytest.raises(LossError, match=what):
        scalar_loss(loss)


def test_a_loss_of_one_element_is_a_scalar():
    assert scalar_loss(LEAF.sum()).shape == ()
    assert scalar_loss(LEAF.sum().reshape(1, 1)).shape == ()


@pytest.mark.parametrize(
    "items",
    [
        -1,
        -0.5,
        math.nan,
        math.inf,
        10**400,
        2**54,
        1e300,
        "8",
        b"8",
        None,
        True,
        print,
        [3],
        1j,
        torch.tensor(-2),
        torch.tensor(math.nan),
    ],
    ids=repr,
)
def test_counts_that_are_none(items):
    with pytest.raises(ItemsError):
        count_of(items)


@pytest.mark.parametrize(
    "items",
    [
        4,
        4.0,
        np.int64(4),
        np.float32(4),
        Decimal(4),
        Fraction(8, 2),
        torch.tensor(4),
        torch.tensor([[4.0]], dtype=torch.bfloat16),
        torch.tensor(4, dtype=torch.uint8),
    ],
    ids=repr,
)
def test_counts_in_every_form(items):
    assert count_of(items) == 4


def test_a_mask_is_not_a_count():
    with pytest.raises(ItemsError, match="sum the mask"):
        count_of(torch.tensor([True, False]))


def test_a_count_on_a_device_is_not_read(monkeypatch):
    pretend_device(monkeypatch)
    assert count_of(torch.tensor([[-1.0]])).shape == ()


def test_tensors_without_values():
    with pytest.raises(ItemsError, match="meta device"):
        count_of(torch.ones((), device="meta"))
    with pytest.raises(LossError, match="meta device"):
        scalar_loss(torch.ones((), device="meta", requires_grad=True))


def test_weights():
    assert host_weight(0.5) == 0.5
    assert host_weight(torch.tensor(2)) == 2.0
    for weight in (math.nan, math.inf, None, "x"):
        with pytest.raises(ItemsError, match="weight is"):
            host_weight(weight)
    assert host_count(0) == 0.0


def test_a_count_has_no_graph():
    for items in (torch.tensor(2.0, requires_grad=True), torch.ones(1, requires_grad=True).sum()):
        with pytest.raises(ItemsError, match="items requires a gradient") as caught:
            count_of(items)
        assert "detach" in caught.value.fix
        assert count_of(items.detach()) == items.item()
