from __future__ import annotations

import math

import pytest
import torch

from instep.engine.reference import relative_error, relative_errors, window_loss


def test_window_loss_ignores_empty_parts_and_weighs_terms():
    one, nan = torch.tensor(2.0), torch.tensor(math.nan)
    parts = [{"a": (one, 3), "b": (nan, 0)}, {"a": (torch.tensor(6.0), 1), "b": (one, 5)}]
    assert window_loss(parts, {"b": 0.5}).item() == 3.0 + 1.0
    assert window_loss([{"a": (nan, 0)}]) is None
    assert window_loss([]) is None


def test_relative_error():
    one = torch.tensor([3.0, 4.0])
    assert relative_error([one], [one]) == 0
    assert relative_error([one * 1.1], [one]) == pytest.approx(0.1, rel=1e-6)
    assert relative_error([None], [one]) == 1.0
    assert relative_error([one], [None]) == math.inf
    assert relative_error([None], [None]) == 0
    assert relative_error([torch.tensor([math.nan, 0.0])], [one]) != 0


def test_a_gradient_that_is_zero_by_nature_does_not_cry_wolf():
    errors = relative_errors(
        {"w": torch.ones(3), "b": torch.tensor([2e-17])},
        {"w": torch.ones(3), "b": torch.tensor([1e-17])},
    )
    assert errors["w"] == 0
    assert errors["b"] < 1e-12
    wrong = relative_errors(
        {"w": torch.ones(3), "b": torch.tensor([2e-6])},
        {"w": torch.ones(3), "b": torch.tensor([1e-6])},
    )
    assert wrong["b"] > 1e-3
