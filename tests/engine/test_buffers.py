"""A window owns its gradients: intruders are noticed, and shared memory is not counted twice."""

from __future__ import annotations

import copy
import math
import weakref

import pytest
import torch
from torch import nn

import instep
from instep.errors import WindowError
from tests.engine.kit import (
    EXACT,
    batches,
    mean_loss,
    mlp,
    pretend_device,
    update_error,
)

DATA = batches([3, 2, 4])
X = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def loop_with(intruder, *, before: bool) -> nn.Module:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer)
    start = copy.deepcopy(model)
    try:
        for window in stepper.windows(DATA, size=3):
            for x, y in window:
                loss = mean_loss(model, x, y)
                if before:
                    intruder(model, optimizer, x, y)
                window.backward(loss, items=len(y))
                if not before:
                    intruder(model, optimizer, x, y)
    finally:
        assert all(p.grad is None for p in model.parameters())
        assert not stepper.is_in_window
        intruded = update_error(start, model, start)
        assert intruded in (0.0, math.inf)
    return model


INTRUDERS = {
    "zero_grad": lambda m, o, x, y: o.zero_grad(),
    "zero_grad to zeros": lambda m, o, x, y: o.zero_grad(set_to_none=False),
    "a plain backward": lambda m, o, x, y: mean_loss(m, x, y).backward(),
    "clipping": lambda m, o, x, y: nn.utils.clip_grad_norm_(m.parameters(), 1e-3),
    "a step": lambda m, o, x, y: o.step(),
}


NOTICED = "changed inside a window|called inside a window|not its own"


@pytest.mark.parametrize("name", INTRUDERS)
@pytest.mark.parametrize("before", [False, True])
def test_calls_that_belong_to_the_old_loop_are_noticed(name, before):
    with pytest.raises(WindowError, match=NOTICED):
        loop_with(INTRUDERS[name], before=before)


def test_looking_at_gradients_is_allowed():
    look = lambda m, o, x, y: [p.grad.norm() for p in m.parameters() if p.grad is not None]
    loop_with(look, before=False)


def test_changing_gradients_in_a_hook_is_allowed():
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda p: print(p.grad.clamp_(-1e-3, 1e-3).shape)
        )
    for window in stepper.windows(DATA, size=3):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
        assert window.skipped is None


def whole_and_split(make, loss_of, lr=0.1, **options) -> float:
    """Train one window of X whole and in three uneven pieces, twice; return the relative error."""
    model, plain = make(), make()
    start = copy.deepcopy(model)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=lr), **options)
    optimizer = torch.optim.SGD(plain.parameters(), lr=lr)
    for _ in range(2):
        with stepper.window() as window:
            for x in (X[:1], X[1:]):
                window.backward(loss_of(model, x), items=len(x))
        optimizer.zero_grad()
        loss_of(plain, X).backward()
        optimizer.step()
    return update_error(start, model, plain)


class TwoViews(nn.Module):
    """Autograd gives both parameters the same memory as their gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Parameter(torch.randn(9, dtype=torch.float64))
        self.b = nn.Parameter(torch.randn(9, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((self.a.view(3, 3) + self.b.view(3, 3)) @ x.T).square().sum(0).mean()


def test_gradients_that_share_memory_are_not_multiplied_twice():
    model = TwoViews()
    model(X).backward()
    assert model.a.grad.data_ptr() == model.b.grad.data_ptr()
    assert whole_and_split(TwoViews, lambda m, x: m(x)) < EXACT


class Shifted(nn.Module):
    """A parameter of one element, to which autograd hands the seed of the backward itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(3, 1).double()
        self.shift = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).square().mean() + self.shift.squeeze()


def test_the_seed_of_a_backward_is_never_used_twice():
    assert whole_and_split(Shifted, lambda m, x: m(x)) < EXACT
    model = Shifted()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.0), clip_norm=0.1)
    norms = {stepper.step(X, model).grad_norm for _ in range(4)}
    assert len(norms) == 1


def test_a_parameter_listed_twice_is_scaled_once():
    weight = nn.Parameter(torch.ones(2))
    model = nn.Module()
    model.weight = weight
    with pytest.warns(UserWarning, match="duplicate"):
        optimizer = torch.optim.SGD([weight, weight], lr=0.1)
    stepper = instep.Stepper(model, optimizer)
    with stepper.window() as window:
        for _ in range(3):
            window.backward(weight.sum(), items=1)
    assert weight.detach().tolist() == pytest.approx([0.8, 0.8])  # twice lr, as torch does


def test_two_steppers_with_windows_open_do_not_reach_each_other():
    left, right = mlp(1), mlp(2)
    x = DATA[0][0]
    alone = instep.Stepper(right, torch.optim.SGD(right.parameters(), lr=0.0))
    with alone.window() as window:
        window.backward(right(x).mean(), items=3)
    expected = window.grad_norm
    first = instep.Stepper(left, torch.optim.SGD(left.parameters(), lr=0.0))
    second = instep.Stepper(right, torch.optim.SGD(right.parameters(), lr=0.0))
    with first.window() as one, second.window() as two:
        two.backward(right(x).mean(), items=3)
        one.backward((left(x) * right(x)).mean(), items=3)
    assert two.grad_norm == expected


def test_freezing_between_micro_batches_is_followed():
    """A GAN loop that freezes one net while it trains the other."""
    g, d = mlp(1, outputs=5), mlp(2)
    optimizers = {
        "g": torch.optim.SGD(g.parameters(), lr=0.1),
        "d": torch.optim.SGD(d.parameters(), lr=0.1),
    }
    d.requires_grad_(False)
    stepper = instep.Stepper([g, d], optimizers)
    norms = {}
    for window in stepper.windows([x for x, _ in DATA], size=3):
        for x in window:
            d.requires_grad_(True)
            window.backward(d(g(x)).square().mean(), items=len(x), optimizer="d")
            d.requires_grad_(False)
            window.backward(d(g(x)).mean(), items=len(x), optimizer="g")
        norms = {update.optimizer: update.grad_norm for update in window.updates}
    whole_g, whole_d = mlp(1, outputs=5), mlp(2)
    x = torch.cat([x for x, _ in DATA])
    whole_d(whole_g(x)).square().mean().backward()
    expected = torch.stack([p.grad.norm() for p in whole_d.parameters()]).norm().item()
    assert norms["d"] == pytest.approx(expected, rel=1e-12)


def test_a_loss_that_reaches_no_parameter_is_refused():
    model, other = mlp(1), mlp(2)
    stepper = instep.Stepper(model, torch.optim.SGD(other.parameters(), lr=0.1))
    with pytest.raises(WindowError, match="no gradient reached"), stepper.window() as window:
        window.backward(mean_loss(model, *DATA[0]), items=3)


def test_gradients_too_large_for_their_own_type_skip_the_update():
    """Finite as a sum, infinite as what the optimizer would get."""
    weight = nn.Parameter(torch.zeros(2, dtype=torch.float16))
    model = nn.Module()
    model.weight = weight
    stepper = instep.Stepper(model, torch.optim.SGD([weight], lr=1.0))
    with pytest.warns(instep.InstepWarning), stepper.window() as window:
        terms = {"a": (weight * 4e4).sum(), "b": (weight * 4e4).sum()}
        window.backward(terms, items={"a": 1, "b": 1})
    assert window.skipped == "non-finite"
    assert weight.detach().tolist() == [0.0, 0.0]
    with stepper.window() as window:
        window.backward((weight * 3e4).sum(), items=1)
    assert window.skipped is None
    assert weight.isfinite().all()


def test_finite_float64_gradients_with_an_overflowing_norm():
    weight = nn.Parameter(torch.zeros(4, dtype=torch.float64))
    model = nn.Module()
    model.weight = weight
    stepper = instep.Stepper(model, torch.optim.SGD([weight], lr=1.0), clip_norm=1.0)
    with stepper.window() as window:
        window.backward((weight * 1e200).sum(), items=1)
    assert window.grad_norm == pytest.approx(2e200)
    assert weight.detach().tolist() == pytest.approx([-0.5] * 4)


def test_what_is_added_to_kept_gradients_goes_with_them():
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.0), keep_grads=True)
    expected = stepper.step(DATA[0], lambda batch: mean_loss(model, *batch)).grad_norm
    mean_loss(model, *DATA[0]).backward()
    nn.utils.clip_grad_norm_(model.parameters(), math.inf)
    assert stepper.step(DATA[0], lambda batch: mean_loss(model, *batch)).grad_norm == expected


def test_optimizers_that_update_together_are_all_watched():
    model = mlp()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.SGD(model[2].parameters(), lr=0.1)
    stepper = instep.Stepper(model, [first, second])
    for intruder in (second.zero_grad, second.step):
        with pytest.raises(WindowError, match=NOTICED), stepper.window() as window:
            window.backward(mean_loss(model, *DATA[0]), items=3)
            intruder()
            window.backward(mean_loss(model, *DATA[1]), items=2)
    with pytest.raises(WindowError, match=NOTICED), stepper.window() as window:
        window.backward(mean_loss(model, *DATA[0]), items=3)
        model[2](torch.ones(1, 7, dtype=torch.float64)).sum().backward()  # the head only
        window.backward(mean_loss(model, *DATA[1]), items=2)
    assert stepper.step(DATA[0], lambda batch: mean_loss(model, *batch)).skipped is None
    first.step()  # outside a window the user's optimizer is the user's


def test_windows_of_two_steppers_on_one_parameter_are_refused():
    model = mlp()
    one = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    other = instep.Stepper(model, torch.optim.SGD([model[2].bias], lr=0.1))
    with one.window() as window:
        window.backward(mean_loss(model, *DATA[0]), items=3)
        held = model[2].bias.grad
        with pytest.raises(WindowError, match=r"not its own|same parameter"):
            other.window()
        assert model[2].bias.grad is held
    assert window.skipped is None


class Overlapping(nn.Module):
    """One gradient is a part of another's memory, at another address."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.s2, self.big, self.s1 = (
            nn.Parameter(torch.randn(n, dtype=torch.float64)) for n in (2, 3, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * (torch.cat([self.s1, self.s2]) + self.big.view(3))).square().sum(1).mean()


def test_gradients_that_overlap_are_told_apart():
    assert whole_and_split(Overlapping, lambda m, x: m(x)) < EXACT


@pytest.mark.parametrize("kind", ["max_norm", "normalised in forward", "clamped"])
def test_weights_that_change_themselves_are_no_alarm(kind):
    """Some models write to their weights in forward; only a step of the optimizer is refused."""
    torch.manual_seed(0)
    table = nn.Embedding(10, 4, max_norm=1.0 if kind == "max_norm" else None)
    stepper = instep.Stepper(table, torch.optim.SGD(table.parameters(), lr=0.1))
    for window in stepper.windows([torch.tensor([1, 2]), torch.tensor([3])], size=2):
        for index in window:
            if kind == "normalised in forward":
                with torch.no_grad():
                    table.weight.copy_(nn.functional.normalize(table.weight))
            window.backward(table(index).square().sum(1).mean(), items=len(index))
            if kind == "clamped":
                with torch.no_grad():
                    table.weight.clamp_(-1, 1)
        assert window.skipped is None


def test_the_gradient_is_not_held_after_its_window():
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with stepper.window() as window:
        window.backward(mean_loss(model, *DATA[0]), items=3)
        alive = [weakref.ref(p.grad) for p in model.parameters()]
    assert [reference() for reference in alive] == [None] * 4


def test_second_derivatives_of_narrow_parameters_keep_their_type():
    """The wider type is for sums in .grad, not for torch.autograd.grad inside the body."""
    weight = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    model = nn.Module()
    model.weight = weight
    stepper = instep.Stepper(model, torch.optim.SGD([weight], lr=0.1))
    with stepper.window() as window:
        for _ in range(2):
            (inner,) = torch.autograd.grad(weight.square().sum(), weight, create_graph=True)
            assert inner.dtype == torch.bfloat16
            window.backward((weight - 0.1 * inner).float().sum(), items=1)
            assert weight.grad.dtype == torch.float32
    assert window.skipped is None


@pytest.mark.parametrize("name", INTRUDERS)
def test_calls_after_the_last_backward_are_noticed_at_the_close(name):
    calls = []

    def once(*args):
        calls.append(1)
        if len(calls) == 3:
            INTRUDERS[name](*args)

    with pytest.raises(WindowError, match=NOTICED):
        loop_with(once, before=False)
    assert len(calls) == 3


def test_a_term_without_items_is_dropped_with_its_nan(monkeypatch):
    """Its count was on the device, so its 0/0 ran; its buffer is left out of the update."""
    pretend_device(monkeypatch)
    model, plain = mlp(), mlp()
    start = copy.deepcopy(model)
    x = DATA[0][0]
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with stepper.window() as window:
        out = model(x)
        nothing = torch.zeros(3, dtype=torch.float64)
        terms = {
            "mean": out.square().mean(),
            "masked": (out.sum(1) * nothing).sum() / nothing.sum(),
        }
        window.backward(terms, items={"mean": 3, "masked": nothing.sum()})
    assert window.skipped is None
    assert math.isnan(window.losses["masked"])
    plain(x).square().mean().backward()
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    assert update_error(start, model, plain) < EXACT


@pytest.mark.parametrize("size", [1, 3])
def test_gradients_before_the_first_backward_of_a_window_are_noticed(size):
    model = mlp()
    start = copy.deepcopy(model)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(WindowError, match="before a window's first backward"):
        for window in stepper.windows(DATA, size=size):
            mean_loss(model, *DATA[0]).backward()
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
    assert update_error(start, model, start) == 0


@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
def test_both_ends_of_a_parameter_group_are_watched(place):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(WindowError, match="changed inside a window"), stepper.window() as window:
        window.backward(mean_loss(model, *DATA[0]), items=3)
        list(model.parameters())[place].grad.mul_(2)
        window.backward(mean_loss(model, *DATA[1]), items=2)


def test_two_windows_on_one_parameter_are_refused_before_any_gradient():
    model = mlp()
    one = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    other = instep.Stepper(model, torch.optim.SGD([model[2].bias], lr=0.1))
    with one.window() as window:
        with pytest.raises(WindowError, match="hold the same parameter"):
            other.window()
        window.backward(mean_loss(model, *DATA[0]), items=3)
    assert window.skipped is None
    assert other.step(DATA[0], lambda batch: mean_loss(model, *batch)).skipped is None
