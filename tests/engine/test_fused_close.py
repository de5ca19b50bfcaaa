"""The fused close against the portable one: same updates, same state, same results.

On machines without a CUDA device the kernel runs in Triton's interpreter.
"""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

import instep
from instep.errors import InstepWarning, WindowError
from instep.fast.flat import Flat
from instep.fast.rules import rule_of

triton = pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Lion(torch.optim.Optimizer):
    """The rule of Lion, written plainly."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_((m * b1 + p.grad * (1 - b1)).sign(), alpha=group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "Adam, L2, maximize": lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1, maximize=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "SGD, momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2),
    "SGD, Nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Lion": lambda p: Lion(p, lr=1e-3, weight_decay=0.1),
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 40)
        self.b = nn.Linear(40, 40)
        self.c = nn.Linear(40, 2)
        self.rare = nn.Linear(6, 2)

    def forward(self, x, rare=False):
        out = self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))
        return out + self.rare(x) if rare else out


def groups(model):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    return [
        {"params": decayed},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0, "lr": 3e-3},
    ]


def batches(dtype):
    generator = torch.Generator().manual_seed(3)
    sizes = (5, 3, 4, 1, 6, 2, 7)
    return [torch.randn(n, 6, generator=generator).to(DEVICE, dtype) for n in sizes]


def train(model, optimizer, *, windows=3, rare=(1,), **options):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler, **options)
    results = []
    for epoch in range(windows):
        for window in stepper.windows(batches(next(model.parameters()).dtype), size=3):
            for x in window:
                loss = model(x, rare=epoch in rare).square().mean()
                window.backward(loss, items=len(x))
            results.append(window.update)
    return results, scheduler


def pair(dtype):
    torch.manual_seed(0)
    model = Net().to(DEVICE, dtype)
    return model, copy.deepcopy(model)


def difference(one, other):
    worst = 0.0
    for a, b in zip(one, other, strict=True):
        a, b = a.detach().double().cpu(), b.detach().double().cpu()
        worst = max(worst, float((a - b).norm()) / (float(b.norm()) or 1.0))
    return worst


def same_bits(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def state_of(optimizer):
    return [
        value
        for group in optimizer.param_groups
        for p in group["params"]
        for _, value in sorted(optimizer.state[p].items())
        if value is not None
    ]


@pytest.mark.parametrize("clip", [{}, {"clip_norm": 0.05}, {"clip_value": 0.01}])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_is_the_portable_one(name, clip):
    fast, plain = pair(torch.float64)
    one, other = OPTIMIZERS[name](groups(fast)), OPTIMIZERS[name](groups(plain))
    found, quick = train(fast, one, fused=True, **clip)
    expected, slow = train(plain, other, **clip)
    tolerance = 1e-12 if "Lion" not in name else 1e-9
    assert difference(fast.parameters(), plain.parameters()) < tolerance
    assert difference(state_of(one), state_of(other)) < tolerance
    assert quick.last_epoch == slow.last_epoch
    for left, right in zip(found, expected, strict=True):
        assert left.loss == pytest.approx(right.loss, rel=1e-10)
        assert left.grad_norm == pytest.approx(right.grad_norm, rel=1e-10)
        assert left.clip_factor == pytest.approx(right.clip_factor, rel=1e-10)
        assert (left.items, left.skipped, left.micro_batches) == (
            right.items,
            right.skipped,
            right.micro_batches,
        )


def test_float32():
    fast, plain = pair(torch.float32)
    make = OPTIMIZERS["AdamW"]
    train(fast, make(groups(fast)), fused=True, clip_norm=0.1)
    train(plain, make(groups(plain)), clip_norm=0.1)
    assert difference(fast.parameters(), plain.parameters()) < 1e-6


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter cuts off what the device rounds")
def test_bfloat16_is_no_further_from_the_truth_than_the_portable_close():
    """Its gradients are not rounded to bf16 before the update, so it may be nearer."""
    fast, plain = pair(torch.bfloat16)
    truth = copy.deepcopy(plain).double()
    make = OPTIMIZERS["AdamW"]
    train(fast, make(groups(fast)), fused=True, clip_norm=0.1)
    for model in (plain, truth):
        train(model, make(groups(model)), clip_norm=0.1)
    together = nn.utils.parameters_to_vector
    expected = together(truth.parameters())
    off = difference([together(plain.parameters())], [expected])
    assert difference([together(fast.parameters())], [expected]) < 1.2 * off


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_goes_to_plain_torch_and_back(name):
    fast, plain = pair(torch.float64)
    make = OPTIMIZERS[name]
    one, other = make(groups(fast)), make(groups(plain))
    train(fast, one, fused=True, windows=2)
    train(plain, other, windows=2)
    swapped_one, swapped_other = make(groups(fast)), make(groups(plain))
    swapped_one.load_state_dict(copy.deepcopy(other.state_dict()))
    swapped_other.load_state_dict(copy.deepcopy(one.state_dict()))
    train(fast, swapped_one, fused=True)
    train(plain, swapped_other)
    assert difference(fast.parameters(), plain.parameters()) < 1e-9


def test_a_state_that_is_loaded_in_between_is_taken_in():
    fast, plain = pair(torch.float64)
    one, other = (OPTIMIZERS["AdamW"](groups(m)) for m in (fast, plain))
    for model, optimizer, options in ((fast, one, {"fused": True}), (plain, other, {})):
        stepper = instep.Stepper(model, optimizer, **options)
        saved = None
        for index, x in enumerate(batches(torch.float64)):
            stepper.step(x, lambda x, model=model: model(x).square().mean(), split=2)
            if index == 2:
                saved = copy.deepcopy(optimizer.state_dict())
            if index == 4:
                optimizer.load_state_dict(saved)
    one.state_dict()
    assert difference(fast.parameters(), plain.parameters()) < 1e-12
    assert difference(state_of(one), state_of(other)) < 1e-12


def test_what_is_not_finite_is_skipped_and_nothing_moves():
    fast, _ = pair(torch.float64)
    optimizer = OPTIMIZERS["AdamW"](groups(fast))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    stepper = instep.Stepper(fast, optimizer, scheduler=scheduler, fused=True)
    x = batches(torch.float64)[0]
    stepper.step(x, lambda x: fast(x).square().mean())
    before = [p.detach().clone() for p in fast.parameters()]
    state = copy.deepcopy(optimizer.state_dict()["state"])
    with pytest.warns(InstepWarning, match="skipped"):
        update = stepper.step(x * math.inf, lambda x: fast(x).square().mean())
        assert update.skipped == "non-finite"
    assert all(torch.equal(a, b) for a, b in zip(before, fast.parameters(), strict=True))
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(state[k][n], after[k][n]) for k in state for n in state[k])
    assert scheduler.last_epoch == 1


def test_the_scheduler_waits_until_the_outcome_is_known():
    fast, _ = pair(torch.float64)
    optimizer = OPTIMIZERS["AdamW"](groups(fast))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    stepper = instep.Stepper(fast, optimizer, scheduler=scheduler, fused=True)
    x = batches(torch.float64)[0]
    first = stepper.step(x, lambda x: fast(x).square().mean())
    assert scheduler.last_epoch == 0
    stepper.step(x, lambda x: fast(x).square().mean())
    assert scheduler.last_epoch == 1
    assert first.skipped is None
    stepper.state_dict()
    assert scheduler.last_epoch == 2
    again = stepper.step(x, lambda x: fast(x).square().mean())
    assert again.loss > 0
    assert scheduler.last_epoch == 3


def test_the_optimizers_own_state_dict_is_up_to_date():
    fast, _ = pair(torch.float64)
    optimizer = OPTIMIZERS["AdamW"](groups(fast))
    stepper = instep.Stepper(fast, optimizer, fused=True)
    stepper.step(batches(torch.float64)[0], lambda x: fast(x).square().mean())
    assert {float(s["step"]) for s in optimizer.state_dict()["state"].values()} == {1.0}


def terms_of(model, x, count, *, empty=None, on_device=False):
    """Return that many losses, each over its own number of items; one of them may have none."""
    out = model(x)
    found = {
        "all": (out.square().mean(), len(x)),
        "first": (out[:1].abs().mean(), 1),
        "rare": (model.rare(x).square().mean(), 3 * len(x)),
        "cubes": (out.pow(3).mean(), 2 * len(x)),
        "last": (out[-1:].square().mean(), 5),
    }
    found = dict(list(found.items())[:count])
    if empty in found:
        found[empty] = (found[empty][0] * 0.0, 0)
    if on_device:
        found = {name: (loss, torch.tensor(n, device=DEVICE)) for name, (loss, n) in found.items()}
    return found


def trained_on_terms(options, dtype, count, **kinds):
    fast, plain = pair(dtype)
    for model, more in ((fast, {"fused": True}), (plain, {})):
        stepper = instep.Stepper(model, OPTIMIZERS["AdamW"](groups(model)), **options, **more)
        for x in batches(dtype)[:4]:
            update = stepper.step(x, lambda x, m=model: terms_of(m, x, count, **kinds), split=2)
            assert update.skipped is None
    return difference(fast.parameters(), plain.parameters())


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_several_denominators(count, clip, on_device):
    options = {"clip_norm": clip}
    assert trained_on_terms(options, torch.float64, count, on_device=on_device) < 1e-12


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("empty", ["all", "first", "rare"])
@pytest.mark.parametrize("on_device", [False, True])
def test_a_term_without_items_is_no_part_of_the_update(count, empty, on_device):
    found = trained_on_terms({}, torch.float64, count, empty=empty, on_device=on_device)
    assert found < 1e-12


@pytest.mark.parametrize("shares", [[0.5], [0.5, 3.0], [0.5, 3.0, -1.0, 0.25]])
def test_terms_are_weighed_by_their_shares(shares):
    parameter = torch.nn.Parameter(torch.zeros(5000, dtype=torch.float64, device=DEVICE))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    flat = Flat(
        optimizer,
        optimizer.param_groups[0],
        [parameter],
        rule=rule_of(optimizer),
        gradient_type=torch.float64,
    )
    generator = torch.Generator().manual_seed(0)
    parts = [torch.zeros_like(flat.gradients) for _ in shares]
    for part in parts:
        part[:5000] = torch.randn(5000, dtype=torch.float64, generator=generator)
    expected = sum(share * part[:5000] for share, part in zip(shares, parts, strict=True))
    told = torch.tensor([1.0, 0.0, 0.0, *shares], dtype=torch.float64, device=DEVICE)
    norm = flat.norm(parts, told[3:])
    assert float(norm) == pytest.approx(float(expected.norm()), rel=1e-12)
    flat.take_state()
    flat.write_rows([True])
    flat.launch(norm, told, parts)
    assert torch.allclose(parameter, -expected, rtol=1e-12, atol=0.0)


def test_several_denominators_with_kept_gradients():
    assert trained_on_terms({"keep_grads": True}, torch.float64, 3) < 1e-12


def test_several_denominators_are_added_up_on_the_way(monkeypatch):
    def refuse(*_):
        raise AssertionError("gradients were written back")

    monkeypatch.setattr("instep.engine.flat_buffers.FlatBuffers.merge", refuse)
    fast, _ = pair(torch.float32)
    stepper = instep.Stepper(fast, OPTIMIZERS["AdamW"](groups(fast)), clip_norm=0.1, fused=True)
    for x in batches(torch.float32)[:2]:
        stepper.step(x, lambda x: terms_of(fast, x, 4), split=2)


@pytest.mark.parametrize("on_device", [False, True])
def test_counts_may_be_tensors(on_device):
    fast, plain = pair(torch.float64)
    for model, options in ((fast, {"fused": True}), (plain, {})):
        stepper = instep.Stepper(
            model, OPTIMIZERS["AdamW"](groups(model)), clip_norm=1.0, **options
        )
        for size, x in zip((3, 0, 5), batches(torch.float64), strict=False):
            count = torch.tensor(size)
            count = count.to(DEVICE) if on_device else count
            update = stepper.step(
                x,
                lambda x, model=model, count=count: (model(x).square().mean(), count),
            )
            assert update.skipped == (None if size else "empty")
    assert difference(fast.parameters(), plain.parameters()) < 1e-12


def test_gradients_can_be_kept():
    fast, plain = pair(torch.float64)
    for model, options in ((fast, {"fused": True}), (plain, {})):
        optimizer = OPTIMIZERS["SGD"](groups(model))
        stepper = instep.Stepper(model, optimizer, clip_norm=0.05, keep_grads=True, **options)
        for x in batches(torch.float64)[:2]:
            stepper.step(x, lambda x, model=model: model(x).square().mean(), split=2)
    assert fast.rare.weight.grad is None
    kept = [p.grad for p in fast.parameters() if p.grad is not None]
    assert difference(kept, [p.grad for p in plain.parameters() if p.grad is not None]) < 1e-12


def test_a_window_can_be_saved_and_continued():
    fast, plain = pair(torch.float64)
    data = batches(torch.float64)

    def run(model, cut):
        optimizer = OPTIMIZERS["AdamW"](groups(model))
        stepper = instep.Stepper(model, optimizer, fused=True)
        for window in stepper.windows(data, size=4):
            for index, x in enumerate(window):
                window.backward(model(x).square().mean(), items=len(x))
                if cut and window.index == 0 and index == 1:
                    return copy.deepcopy(
                        (model.state_dict(), optimizer.state_dict(), stepper.state_dict())
                    )
        return None

    weights, state, place = run(fast, cut=True)
    fast.load_state_dict(weights)
    optimizer = OPTIMIZERS["AdamW"](groups(fast))
    optimizer.load_state_dict(state)
    stepper = instep.Stepper(fast, optimizer, fused=True)
    stepper.load_state_dict(place)
    for window in stepper.windows(data, size=4):
        for x in window:
            window.backward(fast(x).square().mean(), items=len(x))
    run(plain, cut=False)
    assert all(
        torch.equal(a, b) for a, b in zip(fast.parameters(), plain.parameters(), strict=True)
    )


def test_touching_any_gradient_is_noticed():
    fast, _ = pair(torch.float64)
    stepper = instep.Stepper(fast, OPTIMIZERS["AdamW"](groups(fast)), fused=True)
    x = batches(torch.float64)[0]
    with pytest.raises(WindowError, match="gradients changed"), stepper.window() as window:
        window.backward(fast(x).square().mean(), items=len(x))
        fast.b.weight.grad.mul_(2)
        window.backward(fast(x).square().mean(), items=len(x))


def test_frozen_moved_and_added_parameters():
    fast, plain = pair(torch.float64)
    for model, options in ((fast, {"fused": True}), (plain, {})):
        optimizer = OPTIMIZERS["AdamW"]([model.a.weight, model.b.weight])
        stepper = instep.Stepper(model, optimizer, **options)
        loss_fn = lambda x, model=model: model(x).square().mean()
        x = batches(torch.float64)[0]
        model.c.weight.requires_grad_(False)
        model.b.weight.requires_grad_(False)
        stepper.step(x, loss_fn)
        model.b.weight.requires_grad_(True)
        stepper.step(x, loss_fn)
        model.a.weight.data = model.a.weight.data.clone() * 1.5
        stepper.step(x, loss_fn)
        model.c.weight.requires_grad_(True)
        optimizer.add_param_group({"params": [model.c.weight], "lr": 0.1})
        stepper.step(x, loss_fn)
        stepper.step(x, loss_fn)
    assert difference(fast.parameters(), plain.parameters()) < 1e-12


def test_tied_weights_and_strides():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
            self.embed = nn.Embedding(7, 5)
            self.head = nn.Linear(5, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            image, words = x
            return self.conv(image).mean() + self.head(self.embed(words)).square().mean()

    torch.manual_seed(0)
    fast = Tied().to(DEVICE, torch.float64)
    plain = copy.deepcopy(fast)
    batch = (torch.randn(2, 3, 8, 8).to(DEVICE, torch.float64), torch.tensor([1, 2]).to(DEVICE))
    for model, options in ((fast, {"fused": True}), (plain, {})):
        stepper = instep.Stepper(model, OPTIMIZERS["AdamW"](model.parameters()), **options)
        for _ in range(3):
            stepper.step(batch, lambda b, model=model: (model(b), 2))
    assert difference(fast.parameters(), plain.parameters()) < 1e-12
    assert fast.head.weight is fast.embed.weight
    assert fast.conv.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (torch.optim.RMSprop, "does not know RMSprop"),
        (lambda p: torch.optim.AdamW(p, amsgrad=True), "does not know AdamW"),
    ],
)
def test_what_the_kernel_does_not_know_is_said_and_done_the_portable_way(make, reason):
    fast, plain = pair(torch.float64)
    with pytest.warns(InstepWarning, match=reason):
        train(fast, make(fast.parameters()), fused=True)
    train(plain, make(plain.parameters()))
    assert all(
        torch.equal(a, b) for a, b in zip(fast.parameters(), plain.parameters(), strict=True)
    )


def test_the_trace_is_the_same():
    fast, plain = pair(torch.float64)
    traces = []
    for model, options in ((fast, {"fused": True}), (plain, {})):
        trace = instep.Trace()
        train(model, OPTIMIZERS["AdamW"](groups(model)), trace=trace, clip_norm=1.0, **options)
        traces.append([type(event).__name__ for event in trace])
    assert traces[0] == traces[1]
