"""What windows lend to fused layers: only to them, only as they stand, and never for longer."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, parametrize, prune

import instep

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).to(DEVICE)


def data(seed=0, rows=6):
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def loss_of(out):
    return (out.float() - 1).square().mean()


def stepper_of(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return instep.Stepper(model, optimizer, fused=True, precision="bf16", **options)


def window(stepper, call, x):
    with stepper.window() as open_window:
        out = call(x)
        open_window.backward(loss_of(out), items=len(x))
    return out.detach()


def both(body):
    """Run a body on a fused model and on a plain one; return what each returned, and the models."""
    return [(body(stepper_of(model), model), model) for model in (instep.fuse(net()), net())]


def distance(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def is_lent(layer):
    return vars(layer)["_instep_lent"].weight is not None


# -- hooks -------------------------------------------------------------------------------------


def mask(parameter):
    parameter.register_hook(lambda gradient: gradient * 0)


def clear_after(parameter):
    def clear(p):
        p.grad.zero_()

    parameter.register_post_accumulate_grad_hook(clear)


@pytest.mark.parametrize("hook", [mask, clear_after])
@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("when", ["before", "inside", "between"])
def test_hooks_on_parameters_of_fused_layers_are_called(hook, name, when):
    model = instep.fuse(net())
    stepper, parameter = stepper_of(model), getattr(model[0], name)
    if when == "between":
        window(stepper, model, data())
    before = parameter.detach().clone()
    if when != "inside":
        hook(parameter)
    with stepper.window() as open_window:
        loss = loss_of(model(data()))
        if when == "inside":
            hook(parameter)
        open_window.backward(loss, items=6)
    assert torch.equal(parameter, before)


def test_a_layer_without_hooks_is_lent_to_and_one_with_hooks_is_not():
    model = instep.fuse(net())
    stepper = stepper_of(model)
    mask(model[0].weight)
    with stepper.window() as open_window:
        assert not is_lent(model[0])
        assert is_lent(model[2])
        open_window.backward(loss_of(model(data())), items=6)


# -- something else in a parameter's place -----------------------------------------------------


class Twice(nn.Module):
    def forward(self, weight):
        return weight * 2


def substituted(model):
    return lambda x: functional_call(model, {"2.weight": model[2].weight * 3}, (x,))


def parametrized(model):
    parametrize.register_parametrization(model[0], "weight", Twice())
    return model


def normed(model):
    parametrizations.spectral_norm(model[0])
    return model


def pruned(model):
    prune.custom_from_mask(model[2], "weight", torch.zeros(3, 8, device=DEVICE))
    return model


def of_another_class(model):
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model[0].__class__ = Doubled
    return model


def with_another_weight(model):
    model[0].weight = nn.Parameter(model[0].weight.detach() * 2)
    return model


@pytest.mark.parametrize(
    "change", [substituted, parametrized, normed, pruned, of_another_class, with_another_weight]
)
@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_layer_with_something_else_in_place_of_its_weight(change, when):
    def body(stepper, model):
        window(stepper, model, data())
        torch.manual_seed(1)  # what spectral_norm draws
        if when == "before":
            return window(stepper, change(model), data(1))
        with stepper.window() as open_window:
            out = change(model)(data(1))
            open_window.backward(loss_of(out), items=6)
        return out.detach()

    (found, fused), (expected, plain) = both(body)
    assert torch.allclose(found.float(), expected.float(), rtol=2e-2, atol=2e-2)
    assert distance(fused, plain) < 2e-3


def test_a_weight_that_is_written_inside_a_window_is_used_as_it_is():
    def body(stepper, model):
        for open_window in stepper.windows([data(), data()], size=2):
            for number, x in enumerate(open_window):
                if number:
                    with torch.no_grad():
                        model[0].weight.mul_(3.0)
                out = model(x)
                open_window.backward(loss_of(out), items=6)
        return out.detach()

    (found, fused), (expected, plain) = both(body)
    assert torch.allclose(found, expected, rtol=1e-2, atol=1e-2)
    assert distance(fused, plain) < 1e-3


def test_layers_can_be_called_with_torchs_name_of_the_argument():
    model = instep.fuse(nn.ModuleList([nn.Linear(2, 2), nn.Embedding(2, 2), nn.Conv1d(1, 1, 1)]))
    for layer, x in zip(
        model, (torch.ones(1, 2), torch.tensor([1]), torch.ones(1, 1, 2)), strict=True
    ):
        assert torch.equal(layer(input=x), layer(x))


# -- copies ------------------------------------------------------------------------------------


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def saved(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("copied", [pickled, saved, copy.deepcopy])
def test_a_copy_is_fused_and_has_nothing_of_the_original(copied):
    model = instep.fuse(net())
    stepper = stepper_of(model)
    with stepper.window() as open_window:
        again = copied(model)
        assert is_lent(model[0])
        assert not is_lent(again[0])
        with torch.autocast(DEVICE, torch.bfloat16):
            loss_of(again(data())).backward()
        assert again[0].weight.grad is not None
        assert not model[0].weight.grad.any()
        open_window.backward(loss_of(model(data())), items=6)
    again.zero_grad()
    others = stepper_of(again)
    with others.window() as open_window:
        assert is_lent(again[0])
        assert not is_lent(model[0])
        open_window.backward(loss_of(again(data())), items=6)
    assert distance(again, model) < 1e-3


# -- fused and unfused at any time -------------------------------------------------------------


@pytest.mark.parametrize("windows", [0, 1])
def test_a_model_may_be_fused_after_its_stepper_is_built(windows):
    model = net()
    stepper = stepper_of(model)
    for _ in range(windows):
        window(stepper, model, data())
    instep.fuse(model)
    with stepper.window() as open_window:
        assert is_lent(model[0])
        open_window.backward(loss_of(model(data())), items=6)


@pytest.mark.parametrize("when", ["between", "after forward", "before forward"])
def test_a_model_may_be_unfused_at_any_time(when):
    def body(stepper, model):
        window(stepper, model, data())
        if when == "between":
            instep.unfuse(model)
        with stepper.window() as open_window:
            if when == "before forward":
                instep.unfuse(model)
            loss = loss_of(model(data()))
            if when == "after forward":
                instep.unfuse(model)
            open_window.backward(loss, items=6)
            open_window.backward(loss_of(model(data(1))), items=6)
        window(stepper, model, data(2))

    (_, fused), (_, plain) = both(body)
    assert "forward" not in vars(fused[0])
    assert "_instep_lent" not in vars(fused[0])
    assert distance(fused, plain) < 1e-3


def test_a_model_may_be_fused_inside_a_window_for_the_next():
    model = net()
    stepper = stepper_of(model)
    with stepper.window() as open_window:
        loss = loss_of(model(data()))
        instep.fuse(model)
        assert not is_lent(model[0])
        open_window.backward(loss, items=6)
    with stepper.window() as open_window:
        assert is_lent(model[0])
        open_window.backward(loss_of(model(data())), items=6)


def test_a_weight_that_is_replaced_here_and_in_the_optimizer_is_lent_again():
    model = instep.fuse(net())
    stepper = stepper_of(model)
    window(stepper, model, data())
    (optimizer,) = stepper.optimizers["optimizer"]
    model[0].weight = nn.Parameter(model[0].weight.detach() * 2)
    optimizer.param_groups[0]["params"][0] = model[0].weight
    with stepper.window() as open_window:
        assert is_lent(model[0])
        open_window.backward(loss_of(model(data())), items=6)


def test_the_end_of_one_window_takes_nothing_from_another():
    models = [instep.fuse(net()), instep.fuse(net())]
    rates = {str(i): torch.optim.SGD(m.parameters(), lr=0.1) for i, m in enumerate(models)}
    stepper = instep.Stepper(models, rates, fused=True, precision="bf16")
    seen = []
    for open_window in stepper.windows([data(i) for i in range(4)], size={"0": 2, "1": 4}):
        for x in open_window:
            seen.append(is_lent(models[1][0]))
            for name, model in zip(rates, models, strict=True):
                open_window.backward(loss_of(model(x)), items=6, optimizer=name)
    assert all(seen)
