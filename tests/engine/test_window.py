"""Bad input inside a window: a clear error, and everything as it was before the call."""

from __future__ import annotations

import copy
import math
import weakref

import pytest
import torch
from torch import nn

import instep
from instep.errors import InstepError, ItemsError, LossError, WindowError
from tests.engine.kit import (
    EXACT,
    assert_bit_identical,
    batches,
    mean_loss,
    mlp,
    pretend_device,
    train_whole,
    update_error,
)

DATA = batches([3, 2, 4])


def fresh(**options) -> tuple:
    model = mlp()
    return model, instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)


BAD_CALLS = {
    "a number as loss": (lambda w, loss: w.backward(1.0, items=1), LossError),
    "a vector as loss": (lambda w, loss: w.backward(loss * torch.ones(2), items=1), LossError),
    "no graph": (lambda w, loss: w.backward(loss.detach(), items=1), LossError),
    "no items": (lambda w, loss: w.backward(loss), ItemsError),
    "negative items": (lambda w, loss: w.backward(loss, items=-1), ItemsError),
    "NaN items": (lambda w, loss: w.backward(loss, items=math.nan), ItemsError),
    "a mask": (lambda w, loss: w.backward(loss, items=torch.ones(3)), ItemsError),
    "NaN weight": (lambda w, loss: w.backward(loss, items=1, weight=math.nan), ItemsError),
    "a reduction": (lambda w, loss: w.backward(loss, items=1, reduction="max"), LossError),
    "one count, two terms": (lambda w, loss: w.backward({"a": loss}, items=1), ItemsError),
    "a count too many": (
        lambda w, loss: w.backward({"a": loss}, items={"a": 1, "b": 1}),
        ItemsError,
    ),
    "a count missing": (lambda w, loss: w.backward({"a": loss}, items={}), ItemsError),
    "an unknown weight": (
        lambda w, loss: w.backward({"a": loss}, items={"a": 1}, weight={"b": 1}),
        ItemsError,
    ),
    "no count of a term": (
        lambda w, loss: w.backward({"a": loss, "b": loss}, items={"a": 3}),
        ItemsError,
    ),
    "no terms": (lambda w, loss: w.backward({}, items={}), ItemsError),
    "an unknown optimizer": (
        lambda w, loss: w.backward(loss, items=1, optimizer="x"),
        WindowError,
    ),
    "its result": (lambda w, loss: w.loss, WindowError),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_change_nothing(name):
    call, kind = BAD_CALLS[name]
    model, stepper = fresh()
    start = copy.deepcopy(model)
    for window in stepper.windows(DATA, size=3):
        for x, y in window:
            loss = mean_loss(model, x, y)
            held = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
            with pytest.raises(kind) as caught:
                call(window, loss)
            assert {"why:", "fix:", "more:"} <= set(str(caught.value).split())
            for parameter, gradient in zip(model.parameters(), held, strict=True):
                if gradient is None:
                    assert parameter.grad is None
                else:
                    assert torch.equal(parameter.grad, gradient)
            window.backward(loss, items=len(y))
    assert update_error(start, model, train_whole(start, [DATA])) < EXACT


def test_bad_counts_on_a_device_are_refused_at_the_close(monkeypatch):
    pretend_device(monkeypatch)
    for count in (-3, math.nan, math.inf):
        model, stepper = fresh()
        start = copy.deepcopy(model)
        with pytest.raises(ItemsError, match="read only"):
            for window in stepper.windows(DATA, size=3):
                for index, (x, y) in enumerate(window):
                    items = torch.tensor(float(count)) if index == 1 else len(y)
                    window.backward(mean_loss(model, x, y), items=items)
        assert_bit_identical(model, start)
        assert all(p.grad is None for p in model.parameters())
        assert not stepper.is_in_window


def test_an_error_in_backward_discards_the_window_and_is_raised():
    class Faulty(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("out of memory, say")

    model, stepper = fresh()
    start = copy.deepcopy(model)
    with pytest.raises(RuntimeError, match="out of memory, say"):
        for window in stepper.windows(DATA, size=3):
            for index, (x, y) in enumerate(window):
                loss = mean_loss(model, x, y)
                window.backward(Faulty.apply(loss) if index == 1 else loss, items=len(y))
    assert_bit_identical(model, start)
    assert all(p.grad is None for p in model.parameters())
    assert stepper.step(DATA[0], lambda batch: mean_loss(model, *batch)).skipped is None


def test_an_error_in_the_optimizer_ends_the_window():
    class Faulty(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("no")

    model = mlp()
    stepper = instep.Stepper(model, Faulty(model.parameters(), lr=0.1))
    with pytest.raises(RuntimeError, match="no"), stepper.window() as window:
        window.backward(mean_loss(model, *DATA[0]), items=3)
    assert not stepper.is_in_window
    assert all(p.grad is None for p in model.parameters())


def test_plain_backward_inside_a_window_is_noticed():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    with pytest.raises(WindowError, match=r"without a window\.backward"):
        for window in stepper.windows(DATA, size=3):
            for x, y in window:
                mean_loss(model, x, y).backward()
    assert_bit_identical(model, start)


def test_gradients_from_outside_are_refused_and_kept():
    model, stepper = fresh()
    mean_loss(model, *DATA[0]).backward()
    held = [p.grad.clone() for p in model.parameters()]
    for attempt in (stepper.window, lambda: next(iter(stepper.windows(DATA, size=2)))):
        with pytest.raises(WindowError, match="not its own"):
            attempt()
    for parameter, gradient in zip(model.parameters(), held, strict=True):
        assert torch.equal(parameter.grad, gradient)
    assert not stepper.is_in_window
    # Zeros from zero_grad(set_to_none=False) are nobody's gradients.
    for parameter in model.parameters():
        parameter.grad.zero_()
    assert stepper.step(DATA[0], lambda batch: mean_loss(model, *batch)).skipped is None


def test_keep_grads_leaves_the_gradient_readable_until_the_next_window():
    model, stepper = fresh(keep_grads=True, clip_norm=0.01)
    start = copy.deepcopy(model)
    for window in stepper.windows(DATA, size=1):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        assert norm == pytest.approx(0.01, rel=1e-3)
    assert (
        update_error(start, model, train_whole(start, [[b] for b in DATA], clip_norm=0.01)) < EXACT
    )


def test_results_are_read_after_the_window_only():
    model, stepper = fresh()
    with stepper.window() as window:
        with pytest.raises(WindowError, match="still open"):
            _ = window.grad_norm
        window.backward(mean_loss(model, *DATA[0]), items=3)
    assert window.update.items == 3
    for call in (
        lambda: window.backward(mean_loss(model, *DATA[0]), items=3),
        window.close,
        window.discard,
        window.__enter__,
    ):
        with pytest.raises(WindowError, match="closed"):
            call()


def test_a_window_keeps_no_graph_alive():
    model, stepper = fresh()
    seen = []
    with stepper.window() as window:
        for x, y in DATA:
            hidden = model[0](x)
            seen.append(weakref.ref(hidden))
            window.backward(model[2](hidden.tanh()).square().mean(), items=len(y))
            del hidden
            assert seen[-1]() is None


def test_finite_gradients_whose_norm_overflows_are_clipped_not_dropped():
    weight = nn.Parameter(torch.ones(2))
    model = nn.Module()
    model.weight = weight
    stepper = instep.Stepper(model, torch.optim.SGD([weight], lr=1.0), clip_norm=1.0)
    with stepper.window() as window:
        window.backward((weight * 1e30).sum(), items=1)
    assert window.skipped is None
    assert window.grad_norm == pytest.approx(math.sqrt(2) * 1e30, rel=1e-6)
    torch.testing.assert_close(weight.detach(), torch.full((2,), 1 - math.sqrt(0.5)))


def test_errors_can_be_caught_together():
    model, stepper = fresh()
    with stepper.window() as window, pytest.raises(InstepError):
        window.backward(None, items=1)
    assert window.skipped == "empty"
    del model


def test_a_part_without_items_needs_no_graph():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    with stepper.window() as window:
        window.backward(torch.zeros(()), items=0)
        loss = mean_loss(model, *DATA[0])
        window.backward({"loss": loss, "box": torch.zeros(())}, items={"loss": 3, "box": 0})
    assert update_error(start, model, train_whole(start, [DATA[:1]])) < EXACT
    assert math.isnan(window.losses["box"])


def test_a_loss_backward_left_in_the_loop_is_named():
    model, stepper = fresh()
    with pytest.raises(WindowError, match=r"remove loss\.backward\(\) from the loop"):
        for window in stepper.windows(DATA, size=2):
            for x, y in window:
                loss = mean_loss(model, x, y)
                loss.backward()
                window.backward(loss, items=len(y))


@pytest.mark.parametrize(("items", "term"), [({"a": 3}, "b"), (None, "a"), ({"b": 3}, "a")])
def test_a_term_without_items_is_named(items, term):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss = model(torch.ones(2, 5, dtype=torch.float64)).mean()
    with (
        pytest.raises(ItemsError, match=f"term '{term}' has no items") as caught,
        stepper.window() as window,
    ):
        window.backward({"a": loss, "b": loss}, items=items)
    assert "items={'a': ..., 'b': ...}" in caught.value.fix
