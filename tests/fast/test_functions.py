"""Fused layers in graphs: a window's own backwards add to its sums, all others get gradients."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import instep
from instep.errors import WindowError

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# What torch's compiler says about itself.
own = ("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
pytestmark = [pytest.mark.filterwarnings(text) for text in own]


@pytest.fixture(autouse=True)
def compilers():
    """Compile anew in each test, and allow a backward to be made twice."""
    torch._dynamo.reset()
    with torch._functorch.config.patch(donated_buffer=False):
        yield


class Net(nn.Module):
    """Every kind of layer that is fused."""

    def __init__(self, out=3):
        super().__init__()
        self.words = nn.Embedding(7, 5)
        self.row = nn.Conv1d(5, 4, 1)
        self.first = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)
        self.last = nn.Linear(8, out)

    def forward(self, x):
        if not x.is_floating_point():
            x = self.words(x)
        x = torch.tanh(self.row(x.unsqueeze(2))).squeeze(2)
        return self.last(self.norm(torch.tanh(self.first(x))))


def net(out=3):
    torch.manual_seed(0)
    return Net(out).to(DEVICE)


def data(seed=0, rows=6):
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def loss_of(out):
    return (out.float() - 1).square().mean()


def stepper_of(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    options = {"fused": True, "precision": "bf16", "keep_grads": True, **options}
    return instep.Stepper(model, optimizer, **options)


def gradients(model):
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def require_same(found, expected, allowed=3e-2):
    assert found.keys() == expected.keys()
    size = torch.stack([g.norm() for g in expected.values()]).norm()
    for name, gradient in found.items():
        assert (gradient - expected[name]).norm() < allowed * size, name


# -- gradients inside a window -----------------------------------------------------------------


def of_the_input(model, x):
    """Adversarial examples by the sign of a gradient."""
    near = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(model(near)), near)
    return loss_of(model(x + 0.1 * gradient.sign()))


def penalty(model, x):
    """A gradient penalty, whose backward differentiates a backward."""
    x = x.clone().requires_grad_()
    out = model(x).float()
    (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return loss_of(out) + gradient.square().sum(1).mean()


def of_a_weight(model, x):
    loss = loss_of(model(x))
    chosen = [model.last.weight, model.first.bias, model.row.weight]
    found = torch.autograd.grad(loss, chosen, retain_graph=True)
    return loss * sum(g.norm().detach() for g in found)


def of_a_weight_and_again(model, x):
    loss = loss_of(model(x))
    found = torch.autograd.grad(loss, [model.last.weight, model.row.weight], create_graph=True)
    return loss + sum(g.square().sum() for g in found)


def of_words(model, _):
    index = torch.tensor([0, 1, 6, 6], device=DEVICE)
    loss = loss_of(model(index))
    (found,) = torch.autograd.grad(loss, model.words.weight, retain_graph=True)
    return loss * found.norm().detach()


def mapped(model, x):
    return loss_of(torch.vmap(lambda one: model(one.unsqueeze(0)).squeeze(0))(x))


def forwards(model, x):
    _, along = torch.func.jvp(model, (x,), (torch.ones_like(x),))
    return loss_of(model(x)) + along.float().square().mean()


def fixed_point(model, x):
    """A backward that calls torch.autograd.grad from a hook, several times."""
    with torch.no_grad():
        z = model.words.weight[:1].expand(6, -1).clone()
    z = z.requires_grad_()
    start = functional.pad(model(z), (0, 2)) + x

    def solve(gradient):
        total = gradient
        for _ in range(3):
            (part,) = torch.autograd.grad(start, z, total, retain_graph=True)
            total = gradient + 0.1 * part
        return total

    out = start.clone()
    out.register_hook(solve)
    return loss_of(out)


USES = [of_the_input, penalty, of_a_weight, of_a_weight_and_again, of_words, mapped, forwards]
USES += [fixed_point]


@pytest.mark.parametrize("use", USES)
def test_gradients_inside_a_window_are_those_of_plain_layers(use):
    found = []
    for model in (instep.fuse(net()), net()):
        stepper = stepper_of(model)
        for open_window in stepper.windows([data(), data(1)], size=2):
            for x in open_window:
                open_window.backward(use(model, x), items=6)
        found.append(gradients(model))
    require_same(*found)


@pytest.mark.parametrize("use", [of_the_input, fixed_point])
def test_and_where_they_are_compiled(use):
    found = []
    for model in (instep.fuse(net()), net()):
        model.compile(backend="aot_eager")
        stepper = stepper_of(model)
        with stepper.window() as open_window:
            open_window.backward(use(model, data()), items=6)
        found.append(gradients(model))
    require_same(*found)


def test_a_compiled_layer_cannot_hand_out_its_gradient_and_says_so():
    model = instep.fuse(net())
    model.compile(backend="aot_eager")
    with (
        pytest.raises(WindowError, match=r"compiled, fused layer[\s\S]*unfuse"),
        stepper_of(model).window() as open_window,
    ):
        open_window.backward(of_a_weight(model, data()), items=6)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_plain_backward_inside_a_window_is_refused(compiled):
    model = instep.fuse(nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3)).to(DEVICE))
    if compiled:
        model.compile(backend="aot_eager")
    with pytest.raises(WindowError, match="plain"), stepper_of(model).window() as open_window:
        loss_of(model(data())).backward()
        open_window.backward(loss_of(model(data())), items=6)


# -- graphs that outlive their window ----------------------------------------------------------


@pytest.mark.parametrize("when", ["after", "in the next", "after a checkpoint"])
def test_a_graph_that_outlives_its_window_is_refused(when):
    model = instep.fuse(net())
    stepper = stepper_of(model)
    with stepper.window() as open_window:
        if when == "after a checkpoint":
            made = torch.utils.checkpoint.checkpoint(model, data(), use_reentrant=False)
            late = loss_of(made)
        else:
            late = loss_of(model(data()))
        open_window.backward(loss_of(model(data())), items=6)
    with pytest.raises(WindowError, match=r"a window that is over[\s\S]*unfuse"):
        if when == "in the next":
            with stepper.window() as open_window:
                open_window.backward(late, items=6)
        else:
            late.backward()


def test_and_one_that_was_compiled():
    model = instep.fuse(nn.Linear(5, 3).to(DEVICE))
    model.compile(backend="aot_eager")
    stepper = stepper_of(model)
    with stepper.window() as open_window:
        late = loss_of(model(data()))
        open_window.backward(loss_of(model(data())), items=6)
    with pytest.raises(RuntimeError, match=r"window that is over|inplace operation"):
        late.backward()


def test_lookups_may_outlive_their_window():
    model = instep.fuse(nn.Embedding(7, 5, padding_idx=0).to(DEVICE))
    index = torch.tensor([0, 1, 6, 6], device=DEVICE)
    stepper = stepper_of(model, keep_grads=False)
    with stepper.window() as open_window:
        late = model(index).sum()
        open_window.backward(model(index).float().square().mean(), items=4)
    late.backward()
    assert model.weight.grad.sum(1).tolist() == [0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 10.0]


# -- several windows at once -------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_a_loss_through_a_model_of_another_optimizer_adds_nothing_there(compiled):
    found = []
    for fused in (True, False):
        first, second = net(out=5), net()
        if fused:
            instep.fuse(first), instep.fuse(second)
        if compiled:
            first.compile(backend="aot_eager"), second.compile(backend="aot_eager")
        rates = {"g": torch.optim.SGD(first.parameters(), lr=0.1)}
        rates["d"] = torch.optim.SGD(second.parameters(), lr=0.1)
        stepper = instep.Stepper(
            [first, second], rates, fused=True, precision="bf16", keep_grads=True
        )
        for window in stepper.windows([data(), data(1)], size={"g": 2, "d": 2}):
            for x in window:
                made = first(x)
                window.backward(loss_of(second(made.detach())), items=6, optimizer="d")
                window.backward(-loss_of(second(made)), items=6, optimizer="g")
        found.append([gradients(first), gradients(second)])
    for one, other in zip(*found, strict=True):
        require_same(one, other)


def test_a_window_of_another_stepper_inside():
    found = []
    for fused in (True, False):
        outer, inner = net(), net()
        if fused:
            instep.fuse(outer), instep.fuse(inner)
        others = stepper_of(inner)
        with stepper_of(outer).window() as window:
            window.backward(loss_of(outer(data())), items=6)
            with others.window() as within:
                within.backward(loss_of(inner(data(1))), items=6)
            window.backward(loss_of(outer(data(2))), items=6)
        found.append([gradients(outer), gradients(inner)])
    for one, other in zip(*found, strict=True):
        require_same(one, other)


# -- two passes --------------------------------------------------------------------------------


def contrast(z, _):
    z = functional.normalize(z.float(), dim=1)
    return (z @ z.t()).square().mean()


@pytest.mark.parametrize("compiled", [False, True])
def test_representations_of_a_fused_encoder(compiled):
    found = []
    for model in (instep.fuse(net()), net()):
        if compiled:
            model.compile(backend="aot_eager")
        update = stepper_of(model).step(data(rows=8), contrast, encode=model, split=4)
        found.append(gradients(model))
        assert update.grad_norm > 0
    require_same(*found)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))


@pytest.mark.parametrize("compiled", [False, True], ids=["", "parts are compiled"])
@pytest.mark.parametrize("mode", ["window", "exact"])
def test_statistics_of_the_whole_batch_before_fused_layers(mode, compiled):
    torch.manual_seed(0)
    plain = Normed().to(DEVICE)
    found = []
    for model in (instep.fuse(copy.deepcopy(plain)), plain):
        if compiled:
            model.first.compile(backend="aot_eager")
            model.last.compile(backend="aot_eager")
        stepper_of(model).step(
            data(rows=12), lambda x, m=model: (loss_of(m(x)), len(x)), split=4, batchnorm=mode
        )
        found.append(gradients(model))
    require_same(*found)


# -- compilers ---------------------------------------------------------------------------------


def test_a_compiled_model_is_one_graph_and_compiled_once():
    model = instep.fuse(net())
    made = []

    def backend(graph, example):
        made.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, example)

    model.compile(backend=backend, fullgraph=True)
    stepper = stepper_of(model, keep_grads=False)
    for seed in range(4):
        stepper.step(data(seed), lambda x: loss_of(model(x)), split=2)
    assert len(made) == 1
