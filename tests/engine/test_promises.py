"""The promises of a window, each against the true large batch in float64."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

import instep
from instep.errors import WindowError
from tests.engine.kit import (
    EXACT,
    IGNORED,
    Batch,
    assert_bit_identical,
    batches,
    blank,
    counted,
    grouped,
    mean_loss,
    mlp,
    train_whole,
    update_error,
)

SCENARIOS = {
    "equal": batches([4] * 8),
    "short last window": batches([4] * 6),
    "short last micro-batch": batches([4, 4, 4, 4, 4, 4, 4, 1]),
    "ragged": batches([1, 7, 2, 5, 3, 3, 6]),
    "ignored tokens": batches([4] * 8, ignore=[1, 2, 6]),
    "empty micro-batches": [
        blank(batch) if index in (0, 5) else batch for index, batch in enumerate(batches([4] * 8))
    ],
    "one empty window": [
        blank(batch) if index < 4 else batch for index, batch in enumerate(batches([4] * 8))
    ],
    "one batch": batches([3]),
}


def run(model: nn.Module, data: list[Batch], *, as_tensor: bool = False, **options) -> list[float]:
    make = options.pop("make", torch.optim.SGD)
    optimizer = make(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer, **options)
    losses = []
    for window in stepper.windows(data, size=4):
        for x, y in window:
            items = (y != IGNORED).sum() if as_tensor else counted(y)
            window.backward(mean_loss(model, x, y), items=items)
        losses.append(window.loss)
    assert all(p.grad is None for p in model.parameters())
    return losses


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("as_tensor", [False, True], ids=["int", "tensor"])
def test_1_and_2_same_update_as_one_large_batch(name, as_tensor, counts_on):
    data, start = SCENARIOS[name], mlp()
    model = copy.deepcopy(start)
    losses = run(model, data, as_tensor=as_tensor)
    expected = train_whole(start, grouped(data, 4))
    assert update_error(start, model, expected) < EXACT
    assert len(losses) == math.ceil(len(data) / 4)


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop])
def test_1_any_optimizer(make):
    data, start = SCENARIOS["ragged"], mlp()
    model = copy.deepcopy(start)
    run(model, data, make=make)
    assert update_error(start, model, train_whole(start, grouped(data, 4), make)) < 1e-9


def test_1_the_reference_has_teeth():
    """The textbook loop must fail the very comparison that the engine passes."""
    data, start = SCENARIOS["ragged"], mlp()
    model = copy.deepcopy(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index, (x, y) in enumerate(data):
        (mean_loss(model, x, y) / 4).backward()
        if (index + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    assert update_error(start, model, train_whole(start, grouped(data, 4))) > 0.1


def test_1_loss_is_the_whole_windows():
    data, model = SCENARIOS["ragged"], mlp()
    expected = []
    for window in grouped(data, 4):
        x, y = torch.cat([x for x, _ in window]), torch.cat([y for _, y in window])
        expected.append((x, y))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer)
    for window, (x, y) in zip(stepper.windows(data, size=4), expected, strict=True):
        whole = mean_loss(model, x, y).item()
        for micro_x, micro_y in window:
            window.backward(mean_loss(model, micro_x, micro_y), items=len(micro_y))
        assert window.loss == pytest.approx(whole, rel=1e-12)
        assert window.items == len(y)


def masked_mean(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mask = (y != IGNORED).to(x.dtype)
    error = model(x).square().sum(1)
    return (error * mask).sum() / mask.sum()


def test_2_hand_written_masked_mean_over_nothing_contributes_nothing():
    data = SCENARIOS["empty micro-batches"]
    start = mlp()
    model = copy.deepcopy(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer)
    for window in stepper.windows(data, size=4):
        for x, y in window:
            window.backward(masked_mean(model, x, y), items=(y != IGNORED).sum())
    whole = copy.deepcopy(start)
    reference = torch.optim.SGD(whole.parameters(), lr=0.1)
    for group in grouped(data, 4):
        reference.zero_grad()
        x, y = torch.cat([x for x, _ in group]), torch.cat([y for _, y in group])
        masked_mean(whole, x, y).backward()
        reference.step()
    assert update_error(start, model, whole) < EXACT


def test_2_a_sum_needs_no_count_before_the_close(counts_on):
    data, start = SCENARIOS["empty micro-batches"], mlp()
    model = copy.deepcopy(start)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for window in stepper.windows(data, size=4):
        for x, y in window:
            total = nn.functional.cross_entropy(model(x), y, ignore_index=IGNORED, reduction="sum")
            window.backward(total, items=(y != IGNORED).sum(), reduction="sum")
    assert update_error(start, model, train_whole(start, grouped(data, 4))) < EXACT


def test_2_nan_that_cannot_be_gated_skips_the_window_and_says_so(monkeypatch):
    from tests.engine.kit import pretend_device

    pretend_device(monkeypatch)
    data, start = SCENARIOS["empty micro-batches"], mlp()
    model = copy.deepcopy(start)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    skipped = []
    with pytest.warns(instep.InstepWarning, match="inf or NaN"):
        for window in stepper.windows(data, size=4):
            for x, y in window:
                window.backward(masked_mean(model, x, y), items=(y != IGNORED).sum())
            skipped.append(window.skipped)
    assert skipped == ["non-finite", "non-finite"]
    assert_bit_identical(model, start)


def test_2_empty_window_is_a_no_op_or_an_error():
    data, start = [blank(b) for b in batches([4, 4])], mlp()
    model = copy.deepcopy(start)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler)
    for window in stepper.windows(data, size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=counted(y))
        assert window.skipped == "empty"
        assert math.isnan(window.loss)
        assert window.grad_norm == 0.0
    assert_bit_identical(model, start)
    assert not optimizer.state
    assert scheduler.last_epoch == 0
    strict = instep.Stepper(model, optimizer, empty="raise")
    with pytest.raises(WindowError, match="0 items"):
        for window in strict.windows(data, size=2):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=counted(y))
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("ahead", [False, True], ids=["streaming", "counts ahead"])
def test_3_several_denominators_each_exact(ahead, counts_on):
    data = batches([3, 5, 1, 4, 2, 6], ignore=[0, 3])
    data[4] = blank(data[4])
    start = mlp()
    model = copy.deepcopy(start)

    def terms(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        out = net(x)
        known = nn.functional.cross_entropy(out, y, ignore_index=IGNORED)
        return {"known": known, "size": out.square().sum(1).mean()}

    def count(batch: Batch) -> dict[str, object]:
        return {"known": (batch[1] != IGNORED).sum(), "size": len(batch[0])}

    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), clip_norm=0.05)
    for window in stepper.windows(data, size=4, count=count if ahead else None):
        for x, y in window:
            items = None if ahead else count((x, y))
            window.backward(terms(model, x, y), items=items, weight={"size": 0.25})
        assert set(window.losses) == {"known", "size"}
    whole = copy.deepcopy(start)
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for group in grouped(data, 4):
        optimizer.zero_grad()
        x, y = torch.cat([x for x, _ in group]), torch.cat([y for _, y in group])
        parts = terms(whole, x, y)
        (parts["known"] + 0.25 * parts["size"]).backward()
        nn.utils.clip_grad_norm_(whole.parameters(), 0.05)
        optimizer.step()
    assert update_error(start, model, whole) < EXACT


def test_4_break_inside_a_window_leaks_nothing_into_the_next_epoch():
    data, start = SCENARIOS["ragged"], mlp()
    model = copy.deepcopy(start)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for window in stepper.windows(data, size=4):
        for index, (x, y) in enumerate(window):
            window.backward(mean_loss(model, x, y), items=len(y))
            if index == 1:
                break
        break
    assert all(p.grad is None for p in model.parameters())
    for window in stepper.windows(data, size=4):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
    assert update_error(start, model, train_whole(start, grouped(data, 4))) < EXACT


def test_7_schedulers_count_updates():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler)
    data = batches([2] * 10)
    rates = []
    for window in stepper.windows(data, size=4):
        for x, y in window:
            rates.append(optimizer.param_groups[0]["lr"])
            window.backward(mean_loss(model, x, y), items=len(y))
    assert rates == [1.0] * 4 + [1 / 2] * 4 + [1 / 3] * 2
    assert scheduler.last_epoch == 3


def test_6_clip_once_at_the_close(counts_on):
    data, start = SCENARIOS["ragged"], mlp()
    for options in ({"clip_norm": 0.05}, {"clip_value": 0.01}):
        model = copy.deepcopy(start)
        run(model, data, **options)
        expected = train_whole(start, grouped(data, 4), **options)
        assert update_error(start, model, expected) < EXACT
        unclipped = train_whole(start, grouped(data, 4))
        assert update_error(start, model, unclipped) > 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_8_narrow_parameters_accumulate_in_float32(dtype):
    """A thousand equal gradients: a bf16 sum stops growing, a float32 sum does not."""
    weight = nn.Parameter(torch.ones(4, dtype=dtype))
    model = nn.Module()
    model.weight = weight
    x = torch.full((4,), 0.37, dtype=dtype)

    def sums(**options) -> torch.Tensor:
        optimizer = torch.optim.SGD([weight], lr=0.0)
        stepper = instep.Stepper(model, optimizer, keep_grads=True, **options)
        with stepper.window() as window:
            for _ in range(1024):
                window.backward((weight * x).sum(), items=1)
        assert weight.grad.dtype == dtype
        gradient = weight.grad.float()
        weight.grad = None
        return gradient

    exact = x.float()
    wide = (sums() - exact).norm() / exact.norm()
    plain = (sums(accumulate_in=None) - exact).norm() / exact.norm()
    assert wide < 2 * torch.finfo(dtype).eps
    assert plain > 10 * wide
    assert weight.grad_dtype is None
