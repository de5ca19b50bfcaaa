"""Losses with denominators of their own in a fused close: one factor for each, nothing merged.

Each case runs fused and portable side by side. On machines without a CUDA device the kernels run in
Triton's interpreter.
"""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

import instep
from instep.engine import fused_close
from instep.engine.flat_buffers import FlatBuffers
from instep.errors import InstepWarning
from instep.fast.flat import MOST_TERMS, Flat
from tests.engine.test_fused_close import (
    DEVICE,
    OPTIMIZERS,
    Net,
    batches,
    difference,
    groups,
    same_bits,
    state_of,
    terms_of,
)

pytest.importorskip("triton")
WAYS = ({"fused": True}, {})


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return Net().to(DEVICE, dtype)


def trained(name, count, dtype=torch.float32, **options):
    """Train on that many terms; return the model, its optimizer and the norms."""
    model = net().to(dtype)
    optimizer = OPTIMIZERS[name](groups(model))
    stepper = instep.Stepper(model, optimizer, **options)
    norms = []
    for x in batches(torch.float32)[:4]:
        update = stepper.step(x.to(dtype), lambda x: terms_of(model, x, count), split=2)
        norms.append(update.grad_norm)
    return model, optimizer, norms


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("count", [2, MOST_TERMS, MOST_TERMS + 1])
def test_in_float32_it_is_the_update_of_float64(name, count):
    fast, quick, norms = trained(name, count, clip_norm=0.05, fused=True)
    plain, slow, others = trained(name, count, clip_norm=0.05)
    truth, _, lengths = trained(name, count, torch.float64, clip_norm=0.05)
    assert difference(fast.parameters(), truth.parameters()) < 1e-6
    assert difference(fast.parameters(), plain.parameters()) < 1e-6
    assert difference(state_of(quick), state_of(slow)) < 1e-5
    assert norms == pytest.approx(lengths, rel=1e-6)
    assert norms == pytest.approx(others, rel=1e-6)


def test_as_many_as_a_kernel_takes_are_not_merged(monkeypatch):
    merged = []
    merge = FlatBuffers.merge
    monkeypatch.setattr(FlatBuffers, "merge", lambda *a: (merged.append(count), merge(*a))[1])
    for count in range(1, MOST_TERMS + 2):
        trained("AdamW", count, fused=True)
    assert set(merged) == {MOST_TERMS + 1}


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_close_writes_to_no_gradient(monkeypatch, count):
    seen = []
    launch = Flat.launch

    def watched(flat, norm, factors, parts=()):
        held = [flat.gradients, *parts]
        seen.append((len(parts), held, [one.clone() for one in held]))
        launch(flat, norm, factors, parts)

    announce = fused_close._announce

    def compared(lane, buffers):
        # The close is over, the window is not yet cleared.
        for _, held, before in seen:
            assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))
        announce(lane, buffers)

    monkeypatch.setattr(Flat, "launch", watched)
    monkeypatch.setattr(fused_close, "_announce", compared)
    model = net()
    stepper = instep.Stepper(model, OPTIMIZERS["AdamW"](groups(model)), clip_norm=0.1, fused=True)
    stepper.step(batches(torch.float32)[0], lambda x: terms_of(model, x, count), split=2)
    # A term alone has the window's own buffer.
    assert [parts for parts, _, _ in seen] == [count if count > 1 else 0] * 2


def test_parameters_of_two_types_have_factors_of_the_wider():
    """A factor in float32 would leave the float64 half of the model eight digits."""
    found = []
    for way in WAYS:
        torch.manual_seed(0)
        model = nn.ModuleDict({"narrow": nn.Linear(6, 3), "wide": nn.Linear(6, 3).double()})
        model = model.to(DEVICE)
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), **way)
        for x in batches(torch.float64)[:3]:
            stepper.step(
                x,
                lambda x, m=model: {
                    "all": (m["wide"](x).square().mean() + m["narrow"](x.float()).sum(), len(x)),
                    "first": (m["wide"](x)[:1].abs().mean(), 1),
                },
                split=2,
            )
        found.append(model["wide"])
    assert difference(found[0].parameters(), found[1].parameters()) < 1e-12


@pytest.mark.filterwarnings("ignore::instep.InstepWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_with_a_loss_scale():
    """Some windows overflow in fp16 and are skipped; those are the same, and so is the scale."""
    found = []
    for way in WAYS:
        model = net()
        optimizer = OPTIMIZERS["SGD, momentum"](groups(model))
        stepper = instep.Stepper(model, optimizer, precision="fp16", clip_norm=0.05, **way)
        updates = [
            stepper.step(x, lambda x, m=model: terms_of(m, x, 3), split=2)
            for x in batches(torch.float32)
        ]
        told = [(one.skipped, one.micro_batches, one.items) for one in updates]
        found.append((model, told, stepper.scaler.get_scale()))
    (fast, told, scale), (plain, others, expected) = found
    assert {one for one, *_ in told} == {None, "non-finite"}
    assert told == others
    assert scale == expected
    assert difference(fast.parameters(), plain.parameters()) < 1e-6


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("bad", ["all", "first", "rare"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_term_that_is_not_finite_skips_the_window(bad, value):
    model = net()
    optimizer = OPTIMIZERS["AdamW"](groups(model))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler, fused=True)
    x = batches(torch.float32)[0]
    stepper.step(x, lambda x: terms_of(model, x, 3), split=2)
    before, state = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict()["state"])

    def loss(x):
        terms = terms_of(model, x, 3)
        return terms | {bad: (terms[bad][0] * value, terms[bad][1])}

    with pytest.warns(InstepWarning, match="skipped"):
        assert stepper.step(x, loss, split=2).skipped == "non-finite"
    assert same_bits(model, before)
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(state[k][n], after[k][n]) for k in state for n in state[k])
    assert scheduler.last_epoch == 1


@pytest.mark.parametrize("on_device", [False, True])
def test_what_a_term_without_items_holds_is_not_read(on_device):
    made = []
    for way in WAYS:
        model = net()
        stepper = instep.Stepper(model, OPTIMIZERS["AdamW"](groups(model)), clip_norm=0.1, **way)

        def loss(x, m=model):
            terms = terms_of(m, x, 3, on_device=on_device)
            none = torch.tensor(0, device=DEVICE) if on_device else 0
            return terms | {"rare": (terms["rare"][0] * math.nan, none)}

        assert stepper.step(batches(torch.float32)[0], loss, split=2).skipped is None
        made.append(model)
    assert difference(made[0].parameters(), made[1].parameters()) < 1e-6
    assert same_bits(made[0].rare, net().rare)


def test_a_window_of_several_terms_can_be_saved_and_continued():
    data = batches(torch.float32)

    def window_of(model, window, batch):
        terms = terms_of(model, batch, 3)
        losses = {name: loss for name, (loss, _) in terms.items()}
        window.backward(losses, items={name: items for name, (_, items) in terms.items()})

    def run(model, cut):
        optimizer = OPTIMIZERS["AdamW"](groups(model))
        stepper = instep.Stepper(model, optimizer, clip_norm=0.1, fused=True)
        for window in stepper.windows(data, size=4):
            for index, x in enumerate(window):
                window_of(model, window, x)
                if cut and window.index == 0 and index == 1:
                    return copy.deepcopy(
                        (model.state_dict(), optimizer.state_dict(), stepper.state_dict())
                    )
        return None

    saved, whole = net(), net()
    weights, state, place = run(saved, cut=True)
    resumed = net()
    resumed.load_state_dict(weights)
    optimizer = OPTIMIZERS["AdamW"](groups(resumed))
    optimizer.load_state_dict(state)
    stepper = instep.Stepper(resumed, optimizer, clip_norm=0.1, fused=True)
    stepper.load_state_dict(place)
    for window in stepper.windows(data, size=4):
        for x in window:
            window_of(resumed, window, x)
    run(whole, cut=False)
    assert same_bits(resumed, whole)


def test_frozen_and_tied_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 5)
            self.head = nn.Linear(5, 7, bias=False)
            self.head.weight = self.embed.weight
            self.frozen = nn.Linear(5, 5).requires_grad_(False)
            self.only = nn.Linear(5, 1)

    def loss(model, words):
        hidden = model.frozen(model.embed(words))
        return {
            "words": (model.head(hidden).square().mean(), len(words)),
            "first": (model.only(hidden[:1]).abs().mean(), 1),
            "size": (model.embed(words).square().mean(), 3 * len(words)),
        }

    made = []
    for way in WAYS:
        torch.manual_seed(0)
        model = Tied().to(DEVICE, torch.float64)
        start = copy.deepcopy(model.frozen)
        optimizer = OPTIMIZERS["AdamW"](model.parameters())
        stepper = instep.Stepper(model, optimizer, clip_norm=0.1, **way)
        words = torch.arange(6, device=DEVICE)
        for _ in range(3):
            stepper.step(words, lambda w, m=model: loss(m, w), split=2)
        assert same_bits(model.frozen, start)
        assert model.head.weight is model.embed.weight
        made.append(model)
    assert difference(made[0].parameters(), made[1].parameters()) < 1e-12


@pytest.mark.parametrize("count", [2, 4])
def test_bfloat16_parameters_are_updated_from_sums_in_float32(count):
    """One step of SGD from the same sums: off by the rounding of the parameter, and no more."""
    made = []
    for way in WAYS:
        model = net(torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        stepper = instep.Stepper(model, optimizer, **way)
        x = batches(torch.bfloat16)[0]
        stepper.step(x, lambda x, m=model: terms_of(m, x, count), split=2)
        made.append(model)
    # The portable close rounds gradients to bf16 before the step, the interpreter cuts bits off.
    step = 3 * torch.finfo(torch.bfloat16).eps
    for one, other in zip(made[0].parameters(), made[1].parameters(), strict=True):
        off = (one.detach().double() - other.detach().double()).abs()
        assert (off <= step * other.detach().double().abs() + 1e-4).all()
