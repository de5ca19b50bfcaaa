"""Promise 6: precision with no line in the loop body, and never around a step."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import instep
from instep.engine.precision import Precision
from instep.errors import SetupError
from tests.engine.kit import assert_bit_identical, batches

DATA = [(x.float(), y) for x, y in batches([4, 3, 2, 4, 1])]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))


class Spy(torch.optim.SGD):
    """Notes whether autocast is on when it steps."""

    inside: list[bool]

    def step(self, closure=None):
        self.inside = [*getattr(self, "inside", []), torch.is_autocast_enabled("cpu")]
        return super().step(closure)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_the_body_runs_under_autocast_and_nothing_else_does(precision, dtype):
    model = net()
    optimizer = Spy(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer, precision=precision)
    seen = []
    handle = model[0].weight.register_hook(
        lambda grad: seen.append(torch.is_autocast_enabled("cpu"))
    )
    for window in stepper.windows(DATA, size=2):
        assert not torch.is_autocast_enabled("cpu")
        for x, y in window:
            out = model(x)
            assert out.dtype == dtype
            loss = nn.functional.cross_entropy(out, y)
            assert loss.dtype == torch.float32
            window.backward(loss, items=len(y))
            # A second forward in the same body is still inside.
            assert model(x).dtype == dtype
        assert not torch.is_autocast_enabled("cpu")
    handle.remove()
    assert seen == [False] * 5
    assert optimizer.inside == [False] * 3


def plain(model: nn.Module, dtype: torch.dtype | None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for group in (DATA[:2], DATA[2:4], DATA[4:]):
        total = sum(len(y) for _, y in group)
        optimizer.zero_grad()
        for x, y in group:
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                loss = nn.functional.cross_entropy(model(x), y)
            (loss * len(y) / total).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", None), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_the_update_is_that_of_a_hand_written_autocast_loop(precision, dtype):
    start = net()
    found, expected = copy.deepcopy(start), copy.deepcopy(start)
    plain(expected, dtype)
    stepper = instep.Stepper(
        found, torch.optim.SGD(found.parameters(), lr=0.1), precision=precision
    )
    for window in stepper.windows(DATA, size=2):
        for x, y in window:
            window.backward(nn.functional.cross_entropy(found(x), y), items=len(y))
        assert window.skipped is None
    tolerance = {"fp32": 1e-6, "bf16": 2e-2, "fp16": 3e-3}[precision]
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("where", ["inner break", "outer break", "exception", "body error"])
def test_autocast_is_off_after_leaving_early(where):
    model = net()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), precision="bf16")

    def loop():
        for window in stepper.windows(DATA, size=3):
            for x, _ in window:
                if where == "exception":
                    raise KeyError
                if where == "body error":
                    window.backward(model(x), items=1)
                break
            assert not torch.is_autocast_enabled("cpu")
            if where == "outer break":
                break

    if where in ("exception", "body error"):
        with pytest.raises((KeyError, instep.InstepError)):
            loop()
    elif where == "inner break":
        with pytest.warns(instep.InstepWarning, match="left by break"):
            loop()
    else:
        loop()
    assert not torch.is_autocast_enabled("cpu")


def test_windows_by_hand_and_functions_run_under_autocast():
    model = net()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), precision="bf16")
    x, y = DATA[0]
    with stepper.window() as window:
        assert model(x).dtype == torch.bfloat16
        window.backward(nn.functional.cross_entropy(model(x), y), items=len(y))
        assert model(x).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")
    seen = []

    def loss_fn(batch):
        out = model(batch[0])
        seen.append(out.dtype)
        return nn.functional.cross_entropy(out, batch[1])

    stepper.step((x, y), loss_fn, split=2)
    assert seen == [torch.bfloat16] * 2
    assert not torch.is_autocast_enabled("cpu")


def test_fp16_overflow_is_skipped_visibly_and_the_scheduler_waits():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    stepper = instep.Stepper(
        model, optimizer, scheduler=scheduler, precision="fp16", scaler=scaler, clip_norm=1.0
    )
    start = copy.deepcopy(model)
    x, y = DATA[0]
    with stepper.window() as window:
        window.backward(nn.functional.cross_entropy(model(x * 1e4) * 1e4, y), items=len(y))
    assert window.skipped == "non-finite"
    assert_bit_identical(model, start)
    assert scheduler.last_epoch == 0
    assert not optimizer.state
    assert scaler.get_scale() == 2.0**15
    with stepper.window() as window:
        window.backward(nn.functional.cross_entropy(model(x), y), items=len(y))
    assert window.skipped is None
    assert scheduler.last_epoch == 1


def test_clipping_sees_unscaled_gradients():
    model = net()
    other = copy.deepcopy(model)
    x, y = DATA[0]
    norms = []
    for one, scaler in ((model, torch.amp.GradScaler("cpu")), (other, None)):
        stepper = instep.Stepper(
            one, torch.optim.SGD(one.parameters(), lr=0.1), scaler=scaler, clip_norm=0.1
        )
        with stepper.window() as window:
            window.backward(nn.functional.cross_entropy(one(x), y), items=len(y))
        norms.append(window.grad_norm)
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-8)


def test_an_unknown_precision_is_refused():
    with pytest.raises(SetupError, match="precision is 'fp8'"):
        Precision("fp8", ["cpu"])


def test_compiled_models_work_under_windows():
    model = net()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), precision="bf16")
    for window in stepper.windows(DATA, size=2):
        for x, y in window:
            window.backward(nn.functional.cross_entropy(compiled(x), y), items=len(y))
        assert window.skipped is None


@pytest.mark.parametrize("what", ["backward", "close", "error"])
def test_autocast_blocks_of_the_body_stay_as_they_are(what):
    """The body may switch autocast off for a part; a backward in there must not switch it on."""
    model = net()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), precision="bf16")

    def loop():
        for window in stepper.windows(DATA, size=5):
            for x, y in window:
                assert torch.is_autocast_enabled("cpu")
                with torch.autocast("cpu", enabled=False):
                    loss = nn.functional.cross_entropy(model(x), y)
                    assert loss.dtype == torch.float32
                    window.backward(loss, items=-1 if what == "error" else len(y))
                    assert not torch.is_autocast_enabled("cpu")
                    if what == "close":
                        window.close()
                        assert not torch.is_autocast_enabled("cpu")
                assert torch.is_autocast_enabled("cpu")

    if what == "error":
        with pytest.raises(instep.InstepError):
            loop()
    else:
        loop()
    assert not torch.is_autocast_enabled("cpu")


def test_weights_cached_by_a_surrounding_autocast_are_not_reused_after_a_step():
    found, expected = net(), net()
    x, y = DATA[0]
    stepper = instep.Stepper(found, torch.optim.SGD(found.parameters(), lr=0.5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(3):
            stepper.step((x, y), lambda b: nn.functional.cross_entropy(found(b[0]), b[1]))
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(expected(x), y)
        loss.backward()
        optimizer.step()
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


def test_endless_nan_under_fp16_is_said_and_goes_on():
    model = net()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    stepper = instep.Stepper(
        model, torch.optim.SGD(model.parameters(), lr=0.1), precision="fp16", scaler=scaler
    )
    x, y = DATA[0]
    loss_fn = lambda batch: nn.functional.cross_entropy(model(x), y) * torch.nan
    with pytest.warns(instep.InstepWarning, match="inf or NaN"):
        for _ in range(300):
            assert stepper.step((x, y), loss_fn).skipped == "non-finite"
    assert scaler.get_scale() > 0
    healthy = lambda batch: nn.functional.cross_entropy(model(x), y)
    assert stepper.step((x, y), healthy).skipped in (None, "non-finite")


def test_batches_are_drawn_outside_autocast():
    seen = []

    def loader():
        for batch in DATA:
            seen.append(torch.is_autocast_enabled("cpu"))
            yield batch

    model = net()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), precision="bf16")
    for window in stepper.windows(loader(), size=3):
        for x, y in window:
            window.backward(nn.functional.cross_entropy(model(x), y), items=len(y))
    assert seen == [False] * len(DATA)


def test_an_empty_window_tells_the_scaler_nothing():
    model = net()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), scaler=scaler)
    x, y = DATA[0]
    for items in (0, 4, 0, 0, 4):
        stepper.step(x, lambda x: (nn.functional.cross_entropy(model(x), y), items))  # noqa: B023
    assert scaler.state_dict()["scale"] == 8.0
    assert scaler.state_dict()["_growth_tracker"] == 0


@pytest.mark.parametrize("strict", [True, False])
def test_interleaved_steppers_leave_autocast_as_it_was(strict):
    models = [net(), net()]
    steppers = [
        instep.Stepper(m, torch.optim.SGD(m.parameters(), lr=0.1), precision="bf16") for m in models
    ]
    start = copy.deepcopy(models)
    for windows in zip(*(s.windows(DATA, size=2) for s in steppers), strict=strict):
        for batches_ in zip(*windows, strict=strict):
            for window, model, (x, y) in zip(windows, models, batches_, strict=True):
                window.backward(nn.functional.cross_entropy(model(x), y), items=len(y))
    assert not torch.is_autocast_enabled("cpu")
    assert not torch.equal(models[0][0].weight, start[0][0].weight)
    assert not torch.equal(models[1][0].weight, start[1][0].weight)
    if strict:
        # A plain zip never asks the second loop whether it has ended, so its last window is left.
        assert_bit_identical(*models)


def test_a_loss_in_fp16_backs_off_like_torch():
    """Its seed of 65536 does not fit into fp16: inf, skipped, and half the scale."""
    model = net()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), precision="fp16")
    x, _ = DATA[0]
    skipped = []
    for _ in range(3):
        with stepper.window() as window:
            for _ in range(2):
                window.backward(nn.functional.relu(1 - model(x)).mean(), items=4)
        skipped.append(window.skipped)
    assert skipped == ["non-finite", None, None]
    assert stepper.scaler.get_scale() == 2.0**15
