"""Gradients that were changed by hand are noticed; those that events tell of are not."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest
import torch

from instep.watching.witness import Witnesses


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.ones(3))


@pytest.fixture
def witnesses(weight):
    made = Witnesses()
    made.meet("o", weakref.ref(weight))
    return made


def test_nothing_was_done(witnesses):
    assert list(witnesses.changes()) == []


def test_a_gradient_that_nobody_told_of(witnesses, weight):
    weight.grad = torch.ones(3)
    assert list(witnesses.changes()) == [("o", "edited")]
    assert list(witnesses.changes()) == []


@pytest.mark.parametrize(
    ("by_hand", "told"),
    [
        (lambda weight: weight.grad.mul_(0.5), "edited"),
        (lambda weight: setattr(weight, "grad", 2 * weight.grad), "edited"),
        (lambda weight: weight.grad.zero_(), "zeros"),
        (lambda weight: setattr(weight, "grad", torch.zeros(3)), "zeros"),
        (lambda weight: setattr(weight, "grad", None), "none"),
    ],
)
def test_what_is_done_by_hand(witnesses, weight, by_hand, told):
    weight.grad = torch.ones(3)
    witnesses.touched(["o"])
    list(witnesses.changes())
    weight.grad = torch.ones(3)
    list(witnesses.changes())
    by_hand(weight)
    assert list(witnesses.changes()) == [("o", told)]


def test_what_was_told_is_no_news(witnesses, weight):
    weight.grad = torch.ones(3)
    list(witnesses.changes())
    weight.grad = None
    witnesses.cleared("o")
    assert list(witnesses.changes()) == []


def test_optimizers_that_are_gone_are_forgotten(witnesses, weight):
    witnesses.keep(["other"])
    weight.grad = torch.ones(3)
    assert list(witnesses.changes()) == []


def touched(weight):
    return SimpleNamespace(witnesses=(("o", weakref.ref(weight)),))


def test_a_change_that_is_not_counted(witnesses, weight):
    """Seen from the second time on that what a step has used is still there."""
    found = []
    weight.grad = torch.ones(3)
    for _ in range(4):
        found.append(witnesses.changes(goes_back=True))
        weight.grad += 1
        witnesses.added(touched(weight))
        witnesses.stepped("o")
        weight.grad.data.mul_(0.5)
    assert found[1:] == [[], [("o", "moved")], [("o", "moved")]]


def test_what_stays_as_it_was_is_not_moved(witnesses, weight):
    weight.grad = torch.tensor([1.0, float("nan"), float("inf")])
    witnesses.changes()
    for _ in range(4):
        witnesses.added(touched(weight))
        witnesses.stepped("o")
        assert witnesses.changes(goes_back=True) == []
