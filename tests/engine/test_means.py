"""A mean over other than samples is noticed where the loss says so itself, and nowhere else."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import instep
from instep.engine.function import plan_of, run_pieces
from instep.errors import InstepWarning

X = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
UNEVEN = torch.tensor([0, -100, -100, 0, 1, 2, 1, 1])
EVEN = torch.tensor([0, -100, -100, 0, 1, -100, -100, 1])
FULL = torch.tensor([0, 1, 2, 0, 1, 2, 1, 1])
HALVES = torch.tensor([0.3, 0.5, 1.1])
WEIGHT = torch.tensor([1.0, 2.0, 5.0])


def said(targets, make, *, x=X, split=4, times=1) -> list[str]:
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            stepper.step((x, targets), lambda piece: make(model, *piece), split=split)
    assert all(w.category is InstepWarning and w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


def bare(model, x, y):
    return F.cross_entropy(model(x), y)


def test_ignored_targets_and_weights_of_classes_are_noticed_once():
    (text,) = said(UNEVEN, bare, times=3)
    assert "divides by 0.5 per item in one piece and by 1 in another" in text
    assert "(targets != -100).sum()" in text
    assert len(said(FULL, lambda m, x, y: F.cross_entropy(m(x), y, weight=WEIGHT))) == 1
    assert len(said(UNEVEN, lambda m, x, y: F.nll_loss(m(x).log_softmax(1), y))) == 1
    tokens = UNEVEN[:, None].expand(8, 6).contiguous()
    words = X[:, None].expand(8, 6, 5)
    assert len(said(tokens, flat, x=words)) == 1


def flat(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@pytest.mark.parametrize(
    ("targets", "make"),
    [
        (FULL, bare),
        (EVEN, bare),
        (UNEVEN, lambda m, x, y: (bare(m, x, y), (y != -100).sum())),
        (UNEVEN, lambda m, x, y: {"a": (bare(m, x, y), (y != -100).sum())}),
        # Means over samples, whatever is ignored.
        (UNEVEN, lambda m, x, y: F.cross_entropy(m(x), y, reduction="none").mean()),
        (UNEVEN, lambda m, x, y: F.cross_entropy(m(x), y, reduction="sum") / len(y)),
        (UNEVEN, lambda m, x, y: m(x).square().mean()),
    ],
)
def test_right_loops_hear_nothing(targets, make):
    assert said(targets, make) == []


def test_one_piece_is_the_whole():
    assert said(UNEVEN, bare, split=None) == []
    assert said(UNEVEN, bare, split=8) == []


@pytest.mark.parametrize(("targets", "is_right"), [(UNEVEN, False), (EVEN, True), (FULL, True)])
def test_what_is_warned_about_is_wrong_and_what_is_not_is_right(targets, is_right):
    """By `verify`, which says so in its own words and does not warn as well."""
    model = nn.Linear(5, 3)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    found = instep.verify(stepper, (X, targets), lambda piece: bare(model, *piece), split=4)
    assert found.ok == is_right
    assert bool(said(targets, bare)) != is_right


def test_counts_in_narrow_types_are_not_relied_on():
    def narrow(model, x, y):
        return F.cross_entropy(model(x).bfloat16(), y)

    x = torch.randn(601, 5)
    assert said(torch.zeros(601, dtype=torch.long), narrow, x=x, split=301) == []


def test_what_is_packed_is_left_to_the_backward():
    """A checkpoint computes its forward once more when it is unpacked, and other hooks may fail."""
    calls = []

    def counted(model, x, y):
        calls.append(len(x))
        return bare(model, x, y)

    def checkpointed(model, x, y):
        return checkpoint(counted, model, x, y, use_reentrant=False)

    assert said(UNEVEN, checkpointed) == []
    assert calls == [4] * 4


def told(targets, make, items, *, reduction="mean", size=2) -> list[str]:
    """Return what is said of a loop of the user's own, in windows of two micro-batches of four."""
    model = nn.Linear(5, 3)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    pieces = list(zip(X.split(4), targets.split(4), strict=True)) * 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for window in stepper.windows(pieces, size=size):
            for x, y in window:
                window.backward(make(model, x, y), items=items(y), reduction=reduction)
    assert all(w.category is InstepWarning and w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


def summed(model, x, y):
    return F.cross_entropy(model(x), y, reduction="sum")


def counted(y):
    return (y != -100).sum()


def test_items_that_are_not_what_a_loss_divides_by_are_noticed_in_a_loop():
    (text,) = told(UNEVEN, bare, len)
    assert text.startswith("items is not how many items this loss is a mean of.")
    assert "divides by 0.5 per item in one piece of a window and by 1 in another" in text


def test_a_sum_that_is_declared_as_a_mean_is_noticed_and_the_other_way_round():
    (text,) = told(FULL, summed, counted)
    assert "the loss of 4 items is their sum, and was declared as a mean" in text
    (text,) = told(FULL, lambda m, x, y: F.mse_loss(m(x)[:, 0], y.float()), len, reduction="sum")
    assert "the loss of 4 items is a mean, and was declared as their sum" in text


@pytest.mark.parametrize(
    ("make", "items", "options"),
    [
        (bare, counted, {}),
        (bare, lambda y: int(counted(y)), {}),
        (bare, len, {"size": 1}),  # nothing is weighed against anything
        (summed, counted, {"reduction": "sum"}),
        (summed, lambda y: 1, {}),  # the mean over micro-batches of their sums
        (lambda m, x, y: summed(m, x, y) / len(y), len, {}),
        (lambda m, x, y: 0.5 * bare(m, x, y), len, {}),  # it is not seen what became of it
    ],
)
def test_right_loops_of_the_users_own_hear_nothing(make, items, options):
    assert told(UNEVEN, make, items, **options) == []


def test_a_sum_that_is_returned_is_told_what_to_return():
    def summed(model, x, y):
        return F.cross_entropy(model(x), y, reduction="sum")

    (text,) = said(FULL, summed)
    assert "return the mean, or (loss / items, items)" in text
    assert "backward" not in text.split("fix:")[1]
    (text,) = said(UNEVEN, lambda m, x, y: (bare(m, x, y), len(y)))
    assert "return loss, (targets != -100).sum()" in text


def test_a_backward_by_hand_after_a_loss_function_is_told_what_to_pass():
    model = nn.Linear(5, 3)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with warnings.catch_warnings(record=True) as caught, stepper.window() as window:
        warnings.simplefilter("always")
        plan = plan_of((X, UNEVEN), None, [model])
        run_pieces(window, plan, lambda p: (model(p[0]).square().mean(), 8), optimizer=None)
        window.backward(F.cross_entropy(model(X), FULL, reduction="sum"), items=len(X))
    (text,) = [str(w.message) for w in caught]
    assert 'pass reduction="sum" to backward' in text


def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean() * 0.5 + 0.25


@pytest.mark.parametrize(
    "make",
    [
        lambda m, x, y: (bare(m, x, y), accuracy(m, x, y)),
        lambda m, x, y: (bare(m, x, y), 0.7),
        lambda m, x, y: {"a": (F.mse_loss(m(x), x[:, :3]), accuracy(m, x, y))},
        lambda m, x, y: (F.smooth_l1_loss(m(x), x[:, :3]), 0.7),
    ],
)
def test_a_metric_beside_the_loss_is_said_once(make):
    (text,) = said(FULL, make, times=3)
    assert "is not what its loss divides by" in text
    assert "metric" in text


@pytest.mark.parametrize(
    "make",
    [
        lambda m, x, y: (F.cross_entropy(m(x), y, weight=HALVES), HALVES[y].sum()),
        lambda m, x, y: (F.cross_entropy(m(x), y, weight=HALVES), float(HALVES[y].sum())),
        lambda m, x, y: ((m(x).square().mean(1) * HALVES[y]).sum() / HALVES[y].sum(), 1.3),
        lambda m, x, y: (F.mse_loss(m(x), x[:, :3]), len(x)),
        lambda m, x, y: (F.mse_loss(m(x), x[:, :3]), float(len(x))),
    ],
)
def test_counts_with_fractions_are_counts(make):
    assert said(FULL, make) == []
