"""Each cause of a difference is told from the others, in `verify` and in `step(verify=True)`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import instep
from instep.errors import SplitError
from tests.engine.kit import assert_bit_identical

G = torch.Generator().manual_seed(0)
X = torch.randn(11, 5, generator=G)
Y = torch.randint(0, 3, (11,), generator=G)
MASKED = torch.tensor([0, -100, -100, 0, 1, 2, -100, 1, -100, -100, 2])


def net_of(*middle: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), *middle, nn.Linear(6, 3))


def stepper_of(model: nn.Module) -> instep.Stepper:
    return instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))


def nce(z: torch.Tensor) -> torch.Tensor:
    z = F.normalize(z, dim=1)
    return F.cross_entropy(z @ z.T, torch.arange(len(z)))


def labelled(model: nn.Module) -> Any:
    return lambda piece: F.cross_entropy(model(piece[0]), piece[1])


def coupled(model: nn.Module) -> Any:
    return lambda piece: nce(model(piece[0]))


def pooled(model: nn.Module) -> Any:
    return lambda piece: model(piece[0]).mean(0).square().sum()


def summed(model: nn.Module) -> Any:
    return lambda piece: F.cross_entropy(model(piece[0]), piece[1], reduction="sum")


def by_constant(model: nn.Module) -> Any:
    return lambda piece: F.cross_entropy(model(piece[0]), piece[1], reduction="sum") / 64


def weighted(model: nn.Module) -> Any:
    weight = torch.tensor([1.0, 5.0, 0.2])
    return lambda piece: F.cross_entropy(
        model(piece[0]), piece[1], weight=weight.to(model[0].weight.dtype)
    )


def noisy(model: nn.Module) -> Any:
    return lambda piece: F.cross_entropy(F.dropout(model(piece[0]), 0.5), piece[1])


def second_term(model: nn.Module) -> Any:
    def loss_fn(piece):
        out = model(piece[0])
        return {
            "label": (F.cross_entropy(out, piece[1]), len(out)),
            "other": (nce(out), len(out)),
        }

    return loss_fn


def miscounted_term(model: nn.Module) -> Any:
    def loss_fn(piece):
        out = model(piece[0])
        return {
            "size": (out.square().mean(), len(out)),
            "label": (F.cross_entropy(out, piece[1]), len(out)),
        }

    return loss_fn


CASES = [
    # What is wrong, the middle of the net, the loss, the targets, where to read on.
    ("coupled", (), coupled, Y, "two-pass"),
    ("coupled", (), pooled, Y, "two-pass"),
    ("coupled", (), second_term, Y, "two-pass"),
    ("coupled", (nn.BatchNorm1d(6),), coupled, Y, "two-pass"),
    ("items", (), labelled, MASKED, "items"),
    ("items", (), miscounted_term, MASKED, "items"),
    ("items", (), weighted, Y, "items"),
    ("items", (nn.Dropout(0.5),), labelled, MASKED, "items"),
    ("items", (nn.BatchNorm1d(6),), labelled, MASKED, "items"),
    ("sum", (), summed, Y, "items"),
    ("sum", (), by_constant, Y, "items"),
    ("batchnorm", (nn.BatchNorm1d(6),), labelled, Y, "batchnorm"),
    ("batchnorm", (nn.Dropout(0.5), nn.BatchNorm1d(6)), labelled, Y, "batchnorm"),
    ("random", (), noisy, Y, "verify"),
    ("random", (nn.BatchNorm1d(6),), noisy, Y, "verify"),
]


@pytest.mark.parametrize("split", [None, 2, 3, instep.Micro(6), 10])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2].__name__}")
def test_the_cause_is_named(case, split):
    name, middle, loss, targets, page = case
    if any(isinstance(each, nn.BatchNorm1d) for each in middle) and split in (2, 10):
        split = 4  # a piece of one sample has no statistics at all
    model = net_of(*middle)
    found = instep.verify(stepper_of(model), (X, targets), loss(model), split=split)
    assert not found.ok
    assert found.cause.name == name
    assert found.cause.why in found.notes
    assert f"note: {found.cause.why}" in str(found)
    with pytest.raises(SplitError) as refused:
        found.require()
    assert refused.value.why == found.cause.why
    assert refused.value.fix == found.cause.fix
    assert refused.value.more == page


def test_the_weights_are_told():
    model = net_of()
    found = instep.verify(stepper_of(model), (X, MASKED), labelled(model), split=8)
    # The try is of 7 and 4 samples, whatever the split.
    assert "cut for this try into pieces of 7 and 4 samples" in found.cause.why
    assert "0.636 : 0.364 by their items" in found.cause.why
    counted = (MASKED != -100).double()
    share = counted[:7].sum() / counted.sum()
    assert f"weigh {share:.3g} : {1 - share:.3g}" in found.cause.why
    term = instep.verify(stepper_of(model), (X, MASKED), miscounted_term(model), split=8)
    assert "what term 'label' averages" in term.cause.why


def test_what_is_right_has_no_cause():
    model = net_of(nn.Dropout(0.5))
    found = instep.verify(stepper_of(model), (X, Y), labelled(model), split=4)
    assert found.ok
    assert found.cause is None
    assert found.require() is found


def test_too_little_to_tell():
    model = nn.Linear(1, 1, bias=False)
    coupled_one = lambda x: model(x).mean().square()
    x = torch.tensor([[1.0], [2.0]])
    found = instep.verify(stepper_of(model), x, coupled_one)
    assert not found.ok
    assert found.cause.name == "unknown"
    with pytest.raises(SplitError, match="off by"):
        found.require()


# -- the new forms ----------------------------------------------------------------------------


@pytest.mark.parametrize("split", [None, 3])
def test_two_passes_are_verified(split):
    model = net_of()
    found = instep.verify(stepper_of(model), X, lambda z, _: nce(z), encode=model, split=split)
    assert found.ok
    assert found.pieces == (2 if split is None else 4)
    assert found.loss_whole == pytest.approx(found.loss_split, rel=1e-13)
    two = {"a": model, "b": lambda x: model(2 * x)}
    loss_fn = lambda both, _: nce(both["a"] + both["b"])
    assert instep.verify(stepper_of(model), X, loss_fn, encode=two, split=split).ok
    total = lambda x: model(x).sum(0)
    loss_fn = lambda pool, batch: (pool / len(batch)).square().sum()
    assert instep.verify(stepper_of(model), X, loss_fn, encode=total, combine="sum", split=split).ok


def test_an_encoder_that_couples_is_named():
    model = net_of()
    centred = lambda x: model(x) - model(x).mean(0)
    found = instep.verify(stepper_of(model), X, lambda z, _: nce(z), encode=centred, split=4)
    assert found.cause.name == "encode"
    with pytest.raises(SplitError, match="encode couples"):
        found.require()


def test_batchnorm_is_verified():
    model = net_of(nn.BatchNorm1d(6))
    start = copy.deepcopy(model)
    options = {"split": 4, "batchnorm": "exact"}
    found = instep.verify(stepper_of(model), (X, Y), labelled(model), **options)
    assert found.ok
    assert found.notes == ()
    coupled = instep.verify(stepper_of(model), X, lambda z, _: nce(z), encode=model, **options)
    assert coupled.ok
    options["batchnorm"] = "window"
    found = instep.verify(stepper_of(model), (X, Y), labelled(model), **options)
    assert found.cause.name == "batchnorm"
    assert "estimated from each piece" in found.cause.why
    assert found.loss_whole == pytest.approx(found.loss_split, rel=1e-13)
    found = instep.verify(stepper_of(model), X, lambda z, _: nce(z), encode=model, split=4)
    assert found.cause.name == "batchnorm"
    assert_bit_identical(model, start)
    assert model.training


# -- asked for in a step ----------------------------------------------------------------------


def test_a_step_refuses_what_is_not_exact():
    for name, middle, loss, targets, _ in CASES:
        model = net_of(*middle)
        start = copy.deepcopy(model)
        stepper = stepper_of(model)
        random = torch.get_rng_state()
        with pytest.raises(SplitError, match="is not that of the whole batch"):
            stepper.step((X, targets), loss(model), split=4, verify=True)
        assert_bit_identical(model, start)
        assert not stepper.is_in_window, name
        assert torch.equal(torch.get_rng_state(), random)
        assert all(parameter.grad is None for parameter in model.parameters())


def test_a_step_tries_each_shape_once():
    model = net_of()
    stepper = stepper_of(model)
    sizes: list[tuple[int, torch.dtype]] = []

    def loss_fn(piece):
        sizes.append((len(piece[0]), piece[0].dtype))
        return labelled(model)(piece)

    stepper.step((X, Y), loss_fn, split=4, verify=True)
    assert (11, torch.float64) in sizes
    sizes.clear()
    stepper.step((X, Y), loss_fn, split=4, verify=True)
    assert sizes == [(4, torch.float32), (4, torch.float32), (3, torch.float32)]
    stepper.step((X[:9], Y[:9]), loss_fn, split=4, verify=True)
    assert (9, torch.float64) in sizes
    sizes.clear()
    stepper.step((X, Y), loss_fn, split=5, verify=True)
    assert (11, torch.float64) in sizes
    sizes.clear()
    # One piece is the whole: there is nothing to try.
    stepper.step((X, Y), loss_fn, verify=True)
    assert sizes == [(11, torch.float32)]


def test_a_step_tries_each_loss_once():
    model = net_of()
    stepper = stepper_of(model)
    types: list[torch.dtype] = []
    model.register_forward_hook(lambda _, args, out: types.append(out.dtype))
    stepper.step((X, Y), labelled(model), split=4, verify=True)
    assert torch.float64 in types
    types.clear()
    # Made anew, as a lambda in a loop is, and yet the same.
    stepper.step((X, Y), labelled(model), split=4, verify=True)
    assert torch.float64 not in types
    with pytest.raises(SplitError, match="is not that of"):
        stepper.step((X, Y), coupled(model), split=4, verify=True)


def test_a_verified_step_is_the_same_step():
    model = net_of(nn.Dropout(0.5), nn.BatchNorm1d(6))
    other = copy.deepcopy(model)
    for net, verify in ((model, True), (other, False)):
        torch.manual_seed(1)
        stepper_of(net).step(
            X, lambda z, _: nce(z), encode=net, split=11, batchnorm="exact", verify=verify
        )
    assert_bit_identical(model, other)
