"""Promise 5: several optimizers, each with its own window, one loss scale."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import instep
from instep.errors import LossError, WindowError
from tests.engine.kit import EXACT, assert_bit_identical, batches, mlp, update_error

SIZES = {"left": 2, "right": 4}


def losses(left: nn.Module, right: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Each loss depends on both nets, so that a backward that is not kept apart leaks."""
    mixed = left(x) * right(x)
    return {"left": mixed.square().mean(), "right": (mixed - 1).square().mean()}


def reference(left: nn.Module, right: nn.Module, data: list[torch.Tensor], lr: float) -> None:
    """Plain PyTorch: each net's gradient at the weights its micro-batch saw, averaged by items."""
    sums = {"left": [0.0] * 4, "right": [0.0] * 4}
    items = {"left": 0, "right": 0}
    nets = {"left": left, "right": right}
    for index, x in enumerate(data):
        for name, net in nets.items():
            parameters = list(net.parameters())
            found = torch.autograd.grad(losses(left, right, x)[name], parameters)
            sums[name] = [s + g * len(x) for s, g in zip(sums[name], found, strict=True)]
            items[name] += len(x)
        for name, net in nets.items():
            if (index + 1) % SIZES[name] == 0 or index == len(data) - 1:
                with torch.no_grad():
                    for parameter, total in zip(net.parameters(), sums[name], strict=True):
                        parameter -= lr * total / items[name]
                sums[name], items[name] = [0.0] * 4, 0


def pair() -> tuple[nn.Module, nn.Module]:
    return mlp(1), mlp(2)


def rates(left: nn.Module, right: nn.Module) -> dict[str, torch.optim.Optimizer]:
    return {
        "left": torch.optim.SGD(left.parameters(), lr=0.1),
        "right": torch.optim.SGD(right.parameters(), lr=0.1),
    }


@pytest.mark.parametrize("count", [8, 7, 5, 2, 1])
def test_windows_of_two_and_four_are_exact(count):
    data = [x for x, _ in batches([3, 1, 4, 2, 5, 2, 3, 1][:count])]
    left, right = pair()
    expected_left, expected_right = copy.deepcopy(left), copy.deepcopy(right)
    reference(expected_left, expected_right, data, 0.1)
    start = copy.deepcopy(nn.ModuleList([left, right]))
    optimizers = rates(left, right)
    stepper = instep.Stepper([left, right], optimizers)
    made = []
    for window in stepper.windows(data, size=SIZES):
        for x in window:
            both = losses(left, right, x)
            window.backward(both["left"], items=len(x), optimizer="left", retain_graph=True)
            window.backward(both["right"], items=len(x), optimizer="right")
        made += [update.optimizer for update in window.updates]
    assert made.count("left") == -(-count // 2)
    assert made.count("right") == -(-count // 4)
    found, expected = nn.ModuleList([left, right]), nn.ModuleList([expected_left, expected_right])
    assert update_error(start, found, expected) < EXACT


def test_optimizers_in_a_list_update_together_with_one_norm():
    data = batches([3, 5, 2])
    start = mlp()
    model, plain = copy.deepcopy(start), copy.deepcopy(start)
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.SGD(model[2].parameters(), lr=0.3)
    stepper = instep.Stepper(model, [first, second], clip_norm=0.01)
    for window in stepper.windows([x for x, _ in data], size=3):
        for x in window:
            window.backward(model(x).square().mean(), items=len(x))
        assert window.update.clip_factor < 1
    plain(torch.cat([x for x, _ in data])).square().mean().backward()
    nn.utils.clip_grad_norm_(plain.parameters(), 0.01)
    torch.optim.SGD(plain[0].parameters(), lr=0.1).step()
    torch.optim.SGD(plain[2].parameters(), lr=0.3).step()
    assert update_error(start, model, plain) < EXACT


def scaled_pair(**scaler_options) -> tuple:
    left, right = pair()
    left, right = left.float(), right.float()
    optimizers = rates(left, right)
    scaler = torch.amp.GradScaler("cpu", **scaler_options)
    return left, right, optimizers, scaler


def test_one_scaler_grows_once_and_open_windows_follow():
    """Scaling must not change a single bit: every factor is a power of two."""
    data = [x.float() for x, _ in batches([2] * 8)]
    results = []
    for options in ({"init_scale": 4.0, "growth_interval": 1}, {"enabled": False}):
        left, right, optimizers, scaler = scaled_pair(**options)
        stepper = instep.Stepper([left, right], optimizers, scaler=scaler)
        scales = []
        for window in stepper.windows(data, size=SIZES):
            for x in window:
                both = losses(left, right, x)
                window.backward(both["left"], items=len(x), optimizer="left", retain_graph=True)
                window.backward(both["right"], items=len(x), optimizer="right")
                scales.append(scaler.get_scale())
        results.append(nn.ModuleList([left, right]))
        if options.get("enabled", True):
            # One growth per micro-batch in which something closed, also when both closed.
            assert scales == [4, 4, 8, 8, 16, 16, 32, 32]
            assert scaler.get_scale() == 64
    assert_bit_identical(*results)


def test_overflow_of_one_optimizer_skips_only_its_update():
    data = [x.float() for x, _ in batches([2] * 4)]
    left, right, optimizers, scaler = scaled_pair(init_scale=8.0, growth_interval=100)
    before = copy.deepcopy(left)
    stepper = instep.Stepper([left, right], optimizers, scaler=scaler)
    updates = []
    for window in stepper.windows(data, size=SIZES):
        for index, x in enumerate(window):
            both = losses(left, right, x)
            factor = torch.inf if index == 0 else 1.0
            window.backward(
                both["left"] * factor, items=len(x), optimizer="left", retain_graph=True
            )
            window.backward(both["right"], items=len(x), optimizer="right")
            if index == 1:
                assert_bit_identical(left, before)
        updates += window.updates
    assert [(u.optimizer, u.skipped) for u in updates] == [
        ("left", "non-finite"),
        ("left", None),
        ("right", None),
    ]
    assert scaler.get_scale() == 4.0


def test_closing_in_the_middle_of_a_micro_batch_alternates():
    left, right = pair()
    optimizers = rates(left, right)
    stepper = instep.Stepper([left, right], optimizers)
    seen = []
    data = [x for x, _ in batches([2, 2, 2])]
    for window in stepper.windows(data, size={"left": 2, "right": 1}):
        for x in window:
            window.backward(losses(left, right, x)["left"], items=2, optimizer="left")
            before = copy.deepcopy(left)
            due = window.due("left")
            if due:
                window.close("left")
                with pytest.raises(WindowError, match="not open"):
                    window.backward(losses(left, right, x)["left"], items=2, optimizer="left")
            seen.append((due, update_error(mlp(9), left, before) > 0))
            window.backward(losses(left, right, x)["right"], items=2, optimizer="right")
    # The third micro-batch is the last: its short window is due as well.
    assert seen == [(False, False), (True, True), (True, True)]


def test_a_backward_must_name_its_optimizer():
    left, right = pair()
    optimizers = rates(left, right)
    stepper = instep.Stepper([left, right], optimizers)
    x = batches([2])[0][0]
    with stepper.window() as window:
        with pytest.raises(WindowError, match="nothing says which optimizer"):
            window.backward(left(x).mean(), items=2)
        with pytest.raises(WindowError, match="names none"):
            window.backward(left(x).mean(), items=2, optimizer="middle")
        window.backward(left(x).mean(), items=2, optimizer="left")
    # Opened by hand, the optimizer that was not used made no update, not even an empty one.
    assert [update.optimizer for update in window.updates] == ["left"]
    with pytest.raises(WindowError, match="nothing says which optimizer"):
        stepper.step(x, lambda x: left(x).mean())
    assert stepper.step(x, lambda x: right(x).mean(), optimizer="right").optimizer == "right"


def test_an_empty_batch_in_function_style_is_an_empty_update():
    left, right = pair()
    optimizers = rates(left, right)
    stepper = instep.Stepper([left, right], optimizers)
    x = batches([2])[0][0]
    update = stepper.step(x[:0], lambda x: left(x).mean(), split=2, optimizer="left")
    assert (update.optimizer, update.skipped) == ("left", "empty")


def test_the_rate_in_the_trace_is_the_one_that_was_used():
    trace = instep.Trace()
    left, _ = pair()
    optimizer = torch.optim.SGD(left.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    stepper = instep.Stepper(left, optimizer, scheduler=scheduler, trace=trace)
    x = batches([2])[0][0]
    for _ in range(2):
        stepper.step(x, lambda x: left(x).mean())
    assert [event.lr for event in trace.of("step")] == pytest.approx([1.0, 0.1])
    assert [event.lr for event in trace.of("schedule")] == pytest.approx([0.1, 0.01])


def test_reentrant_checkpoints_are_refused_with_several_optimizers():
    """torch would leave the parameters inside them without gradients, and say nothing."""
    left, right = pair()
    optimizers = rates(left, right)
    stepper = instep.Stepper([left, right], optimizers)
    x = batches([2])[0][0].requires_grad_()
    with pytest.raises(LossError, match="reentrant"), stepper.window() as window:
        loss = left[2](checkpoint(left[0], x, use_reentrant=True)).mean()
        window.backward(loss, items=2, optimizer="left")
    with stepper.window() as window:
        loss = right[2](checkpoint(right[0], x, use_reentrant=False)).mean()
        window.backward(loss, items=2, optimizer="right")
    assert window.update.skipped is None
