from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import instep
from instep.errors import LossError, SetupError, WindowError
from tests.engine.kit import assert_bit_identical

X = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0])


def stepper_of(model: nn.Module) -> instep.Stepper:
    return instep.Stepper(model, torch.optim.AdamW(model.parameters()))


def plain_net(*middle: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), *middle, nn.Linear(6, 3))


def cross_entropy(model: nn.Module):
    return lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1])


def test_a_mean_over_samples_is_the_same_however_split():
    model = plain_net(nn.Tanh())
    for split in (None, 1, 3, instep.Micro(6)):
        found = instep.verify(stepper_of(model), (X, Y), cross_entropy(model), split=split)
        assert found.ok
        assert found.worst < 1e-14
        assert set(found.errors) == {"0.weight", "0.bias", "2.weight", "2.bias"}
        assert found.loss_whole == pytest.approx(found.loss_split, rel=1e-14)
    assert "the same gradient" in str(found)
    assert found.pieces == 2


def test_a_loss_that_couples_its_samples_is_found():
    model = plain_net(nn.Tanh())

    def contrastive(x):
        z = nn.functional.normalize(model(x), dim=1)
        return nn.functional.cross_entropy(z @ z.T, torch.arange(len(x)))

    found = instep.verify(stepper_of(model), X, contrastive)
    assert not found.ok
    assert found.worst > 0.05
    assert "NOT the same" in str(found)


def test_wrong_items_are_found():
    model = plain_net(nn.Tanh())
    masked = torch.tensor([0, -100, -100, 0, 1, 2, -100])

    def loss_fn(batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])  # items: samples, wrongly

    assert not instep.verify(stepper_of(model), (X, masked), loss_fn).ok


def test_batchnorm_is_named_and_dropout_is_not_in_the_way():
    model = plain_net(nn.BatchNorm1d(6), nn.Dropout(0.5))
    found = instep.verify(stepper_of(model), (X, Y), cross_entropy(model))
    assert not found.ok
    assert "1 is a BatchNorm1d in training mode" in found.notes[0]
    model[1].eval()
    found = instep.verify(stepper_of(model), (X, Y), cross_entropy(model))
    assert found.ok
    assert found.notes == ()


def test_a_random_loss_is_said_to_be_random():
    model = plain_net()

    def noisy(batch):
        return nn.functional.cross_entropy(nn.functional.dropout(model(batch[0]), 0.5), batch[1])

    found = instep.verify(stepper_of(model), (X, Y), noisy)
    assert any("random" in note for note in found.notes)


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_before(fails):
    model = plain_net(nn.BatchNorm1d(6), nn.Dropout(0.5)).to(torch.bfloat16)
    stepper = stepper_of(model)
    with stepper.window() as window:
        window.backward(model(X.bfloat16()).float().square().mean(), items=7)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    start = copy.deepcopy(model)
    held = model[0].weight.grad
    random = torch.get_rng_state()
    dtypes = [p.dtype for p in model.parameters()]
    calls = []

    def loss_fn(batch):
        calls.append(1)
        if fails and len(calls) == 3:
            raise ZeroDivisionError
        return cross_entropy(model)(batch)

    if fails:
        with pytest.raises(ZeroDivisionError):
            instep.verify(stepper, (X, Y), loss_fn)
    else:
        instep.verify(stepper, (X, Y), loss_fn)
    assert [p.dtype for p in model.parameters()] == dtypes
    assert_bit_identical(model, start)
    assert model[0].weight.grad is held
    assert all(p.grad is None for p in model[3].parameters())
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert model[2].training
    model(X.bfloat16()).sum().backward()
    assert model[3].weight.grad.dtype == torch.bfloat16


def test_several_terms_and_unused_parameters():
    model = plain_net(nn.Tanh())
    model.unused = nn.Parameter(torch.ones(2))

    def terms(batch):
        out = model[2](model[1](model[0](batch[0])))
        label = nn.functional.cross_entropy(out, batch[1])
        return {"label": (label, len(batch[1])), "size": (out.square().mean(), 2 * len(batch[1]))}

    found = instep.verify(stepper_of(model), (X, Y), terms)
    assert found.ok
    assert found.errors["unused"] == 0.0


def test_it_is_refused_where_it_cannot_be():
    model = plain_net()
    stepper = stepper_of(model)
    with stepper.window() as window:
        with pytest.raises(WindowError, match="inside a window"):
            instep.verify(stepper, (X, Y), cross_entropy(model))
        window.backward(cross_entropy(model)((X, Y)), items=7)
    with pytest.raises(LossError, match="no graph"):
        instep.verify(stepper, X, lambda x: x.mean())


def test_models_with_equal_names_are_told_apart():
    left, right = nn.Linear(5, 3), nn.Linear(5, 3)
    parameters = [*left.parameters(), *right.parameters()]
    stepper = instep.Stepper([left, right], torch.optim.SGD(parameters, lr=0.1))

    def coupled(x):
        z = left(x)
        return (z @ z.T).logsumexp(1).mean() + right(x).mean()

    found = instep.verify(stepper, X, coupled)
    assert set(found.errors) == {
        f"models[{index}].{name}" for index in (0, 1) for name in ("weight", "bias")
    }
    assert not found.ok


def test_nan_is_never_ok():
    model = plain_net()

    def broken(batch):
        return nn.functional.cross_entropy(
            model(batch[0]) * torch.tensor([torch.nan, 1, 1]), batch[1]
        )

    with pytest.warns(instep.InstepWarning):
        found = instep.verify(stepper_of(model), (X, Y), broken)
    assert not found.ok
    assert found.worst != found.worst


def test_complex_gradients_are_compared_whole():
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.randn(4, 2)
    good = lambda x: (x * model.weight).abs().square().mean()
    assert instep.verify(stepper, x, good).ok
    coupled = lambda x: ((x * model.weight).imag.sum() - 1).square()
    assert not instep.verify(stepper, x, coupled).ok
    assert model.weight.dtype == torch.complex64


def test_float64_models_get_their_statistics_back():
    model = plain_net(nn.BatchNorm1d(6)).double()
    start = copy.deepcopy(model)
    instep.verify(stepper_of(model), (X.double(), Y), cross_entropy(model))
    assert_bit_identical(model, start)


def test_what_verify_cannot_do_it_says():
    lazy = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3))
    with pytest.raises(LossError, match="without a shape"):
        instep.verify(stepper_of(lazy), (X, Y), cross_entropy(lazy))
    lazy(X)
    assert instep.verify(stepper_of(lazy), (X, Y), cross_entropy(lazy)).ok
    model = plain_net()
    with pytest.raises(LossError, match="does not run in float64"):
        instep.verify(stepper_of(model), X, lambda x: model(x.float()).mean())
    assert model[0].weight.dtype == torch.float32


def test_a_term_without_items_is_in_neither():
    model = plain_net()

    def terms(x):
        out = model(x)
        return {"a": (out.square().mean(), len(x)), "b": (out.mean(), 0)}

    assert instep.verify(stepper_of(model), X, terms).ok


def test_buffers_that_forward_replaces_come_back():
    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)
            self.register_buffer("average", torch.zeros(()))

        def forward(self, x):
            out = self.layer(x)
            self.average = 0.9 * self.average + 0.1 * out.detach().mean()
            return out

    model = Averaged()
    held = model.average
    instep.verify(stepper_of(model), (X, Y), cross_entropy(model))
    assert model.average is held
    assert held.dtype == torch.float32
    assert held.item() == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, weight: x.float() @ weight,
        lambda x, weight: torch.bmm(x[None].float(), weight[None]),
        lambda x, weight: torch.linalg.solve(weight @ weight.T, x.float().T),
        lambda x, weight: nn.functional.conv1d(x[:, None].float(), weight[:, None]),
        lambda x, weight: torch.dot(x[0].float(), weight[:, 0]),
    ],
)
def test_a_loss_that_fixes_its_type_is_named(wrong):
    """However the operation words it: "dtype", "scalar type" or "type"."""
    model = nn.ParameterList([nn.Parameter(torch.rand(5, 5))])
    with pytest.raises(LossError, match="does not run in float64"):
        instep.verify(stepper_of(model), X, lambda x: wrong(x, model[0]).mean())


def test_weights_of_classes_in_another_type_are_named():
    model = nn.Linear(5, 3)
    weight = torch.tensor([1.0, 2.0, 5.0])

    def loss(batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1], weight=weight)

    with pytest.raises(LossError, match="does not run in float64") as caught:
        instep.verify(stepper_of(model), (X, Y), loss, split=4)
    assert "weight.to(logits.dtype)" in caught.value.fix


def test_other_errors_of_a_loss_are_its_own():
    model = plain_net()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        instep.verify(stepper_of(model), X, lambda x: model(x[:, :2]).mean())


def test_it_is_given_a_stepper():
    model = nn.Linear(3, 1)
    with pytest.raises(SetupError, match=r"given a Linear, not an instep\.Stepper") as caught:
        instep.verify(model, torch.ones(4, 3), lambda x: model(x).mean(), split=2)
    assert "instep.Stepper(model, optimizer)" in caught.value.fix


def test_notes_say_which_model():
    models = [nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) for _ in range(2)]
    optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)
    stepper = instep.Stepper(models, optimizer)
    found = instep.verify(
        stepper, torch.randn(6, 3), lambda x: models[1](models[0](x)).square().mean(), split=2
    )
    assert [note.split()[0] for note in found.notes[:2]] == ["models[0].1", "models[1].1"]


def test_samples_along_another_dimension_are_verified_along_it():
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = (torch.randn(7, 3, 2), torch.randn(5, 3))
    split = instep.Micro(2, dim=1)

    def right(piece):
        return (model(piece[0]).squeeze(-1).mean(0) - piece[1].mean(0)).square().mean()

    assert instep.verify(stepper, batch, right, split=split).ok
    found = instep.verify(stepper, batch, lambda p: right(p) * p[0].shape[1], split=split)
    assert found.cause is not None
    assert found.cause.name == "sum"


def test_a_batch_that_may_be_cut_in_two_ways_is_run_whole_and_that_is_said():
    model = plain_net()
    batch = [[X, Y], [X, Y]]

    def loss(pairs):
        found = [nn.functional.cross_entropy(model(x), y) for x, y in pairs]
        return torch.stack(found).mean(), len(pairs) * len(X)

    found = instep.verify(stepper_of(model), batch, loss)
    assert (found.ok, found.pieces) == (True, 1)
    (note,) = found.notes
    assert "nothing was cut" in note
    assert "dim=None" in note
    assert (
        instep.verify(stepper_of(model), batch, loss, split=instep.Micro(1, dim=None)).pieces == 2
    )
    with pytest.raises(LossError, match="samples, or columns"):
        instep.verify(stepper_of(model), batch, lambda pairs: loss(pairs)[0])
