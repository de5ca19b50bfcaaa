"""The engine on a CUDA device: the same promises, and no sync before the close."""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import instep

IGNORED = -100
DEVICE = "cuda"


def net(dtype: torch.dtype = torch.float64, *, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(dropout), nn.Linear(32, 8)).to(
        DEVICE, dtype
    )


def data(dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, Tensor]]:
    """Ragged micro-batches; number 2 has no target at all, number 0 starts the stepper's life."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for index, size in enumerate([5, 9, 4, 7, 3, 8, 6]):
        x = torch.randn(size, 16, generator=generator).to(DEVICE, dtype)
        y = torch.randint(0, 8, (size,), generator=generator)
        y[::3] = IGNORED
        if index in (0, 2):
            y[:] = IGNORED
        made.append((x, y.to(DEVICE)))
    return made


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, ignore_index=IGNORED)


def whole(model: nn.Module, batches: list[tuple[Tensor, Tensor]], size: int, **clip: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for first in range(0, len(batches), size):
        x = torch.cat([x for x, _ in batches[first : first + size]])
        y = torch.cat([y for _, y in batches[first : first + size]])
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip["clip_norm"])
        optimizer.step()


def error(start: nn.Module, found: nn.Module, expected: nn.Module) -> float:
    pairs = list(zip(found.parameters(), expected.parameters(), start.parameters(), strict=True))
    difference = torch.stack([(f - e).double().norm() for f, e, _ in pairs]).norm()
    travelled = torch.stack([(e - s).double().norm() for _, e, s in pairs]).norm()
    return (difference / travelled).item()


@contextlib.contextmanager
def no_sync() -> Iterator[None]:
    """Make every call that waits for the device an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_exact_with_counts_on_the_device_and_no_sync_per_micro_batch() -> None:
    for clip in ({}, {"clip_norm": 0.05}):
        start = net()
        model, expected = copy.deepcopy(start), copy.deepcopy(start)
        batches = data()
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), **clip)
        for window in stepper.windows(batches, size=3):
            for x, y in window:
                with no_sync():
                    window.backward(loss_of(model, x, y), items=(y != IGNORED).sum())
            assert window.skipped is None
        whole(expected, batches, 3, **clip)
        assert error(start, model, expected) < 1e-12


def test_sums_and_terms_without_a_sync() -> None:
    start = net()
    batches = data()
    model, expected = copy.deepcopy(start), copy.deepcopy(start)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for window in stepper.windows(batches, size=7):
        for x, y in window:
            with no_sync():
                out = model(x)
                label = F.cross_entropy(out, y, ignore_index=IGNORED, reduction="sum")
                size = out.square().sum()
                window.backward(
                    {"label": label, "size": size},
                    items={"label": (y != IGNORED).sum(), "size": out.numel()},
                    weight={"size": 0.5},
                    reduction="sum",
                )
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    out = expected(x)
    (F.cross_entropy(out, y, ignore_index=IGNORED) + 0.5 * out.square().mean()).backward()
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    assert error(start, model, expected) < 1e-12


def test_an_empty_window_and_bad_counts() -> None:
    model = net()
    start = copy.deepcopy(model)
    x, y = data()[0]
    stepper = instep.Stepper(model, torch.optim.AdamW(model.parameters()))
    with stepper.window() as window:
        window.backward(loss_of(model, x, y), items=(y != IGNORED).sum())
    assert window.skipped == "empty"
    with pytest.raises(instep.InstepError, match="read only"), stepper.window() as window:
        window.backward(model(x).mean(), items=torch.tensor(-1, device=DEVICE))
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), start.parameters(), strict=True)
    )
    assert all(p.grad is None for p in model.parameters())


def test_bf16_and_fp16_against_a_hand_written_loop() -> None:
    for precision, dtype, limit in (("bf16", torch.bfloat16, 2e-2), ("fp16", torch.float16, 5e-3)):
        start = net(torch.float32)
        batches = data(torch.float32)
        model, plain = copy.deepcopy(start), copy.deepcopy(start)
        stepper = instep.Stepper(
            model, torch.optim.SGD(model.parameters(), lr=0.1), precision=precision, clip_norm=1.0
        )
        for window in stepper.windows(batches, size=7):
            for x, y in window:
                out = model(x)
                assert out.dtype == dtype
                with no_sync():
                    loss = F.cross_entropy(out, y, ignore_index=IGNORED)
                    window.backward(loss, items=(y != IGNORED).sum())
        assert window.skipped is None
        total = sum(int((y != IGNORED).sum()) for _, y in batches)
        for x, y in batches:
            with torch.autocast(DEVICE, dtype=dtype):
                loss = F.cross_entropy(plain(x), y, ignore_index=IGNORED, reduction="sum")
            (loss / total).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        torch.optim.SGD(plain.parameters(), lr=0.1).step()
        assert error(start, model, plain) < limit


def test_fp16_overflow_backs_off_and_skips() -> None:
    model = net(torch.float32)
    start = copy.deepcopy(model)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), precision="fp16")
    x, y = data(torch.float32)[1]
    with stepper.window() as window:
        window.backward(loss_of(model, x, y) * 1e38, items=1)
    assert window.skipped == "non-finite"
    assert stepper.scaler.get_scale() == 2.0**15
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), start.parameters(), strict=True)
    )


def test_narrow_parameters_accumulate_in_float32_and_fused_optimizers_step() -> None:
    for options in ({"fused": True}, {"foreach": True}, {}):
        model = net(torch.bfloat16)
        stepper = instep.Stepper(
            model, torch.optim.AdamW(model.parameters(), **options), keep_grads=True
        )
        x = torch.randn(4, 16, device=DEVICE, dtype=torch.bfloat16)
        whole_gradient = torch.autograd.grad(
            model(x).float().square().mean(), list(model.parameters())
        )
        with stepper.window() as window:
            for _ in range(512):
                window.backward(model(x).float().square().mean(), items=4)
            assert model[0].weight.grad.dtype == torch.float32
        assert window.skipped is None
        for parameter, gradient in zip(model.parameters(), whole_gradient, strict=True):
            assert parameter.grad.dtype == torch.bfloat16
            torch.testing.assert_close(parameter.grad, gradient, rtol=2e-2, atol=1e-6)


def test_resume_in_the_middle_of_a_window_with_dropout_on_the_device() -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer, instep.Stepper]:
        model = net(torch.float32, dropout=0.3)
        optimizer = torch.optim.AdamW(model.parameters())
        return model, optimizer, instep.Stepper(model, optimizer, precision="bf16")

    batches = data(torch.float32)
    for stop in range(7):
        model, optimizer, stepper = build()
        torch.cuda.manual_seed(5)
        saved = io.BytesIO()
        seen = 0
        for window in stepper.windows(batches, size=3):
            for x, y in window:
                window.backward(loss_of(model, x, y), items=(y != IGNORED).sum())
                if seen == stop:
                    parts = [model.state_dict(), optimizer.state_dict(), stepper.state_dict()]
                    torch.save(parts, saved)
                seen += 1
        saved.seek(0)
        again, again_optimizer, resumed = build()
        parts = torch.load(saved, weights_only=True)
        for part, owner in zip(parts, (again, again_optimizer, resumed), strict=True):
            owner.load_state_dict(part)
        for window in resumed.windows(batches, size=3):
            for x, y in window:
                window.backward(loss_of(again, x, y), items=(y != IGNORED).sum())
        for one, other in zip(model.parameters(), again.parameters(), strict=True):
            assert torch.equal(one, other), stop


def test_several_optimizers_and_one_scaler() -> None:
    left, right = net(torch.float32), net(torch.float32)
    optimizers = {
        "left": torch.optim.SGD(left.parameters(), lr=0.1),
        "right": torch.optim.SGD(right.parameters(), lr=0.1),
    }
    scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0, growth_interval=1)
    stepper = instep.Stepper([left, right], optimizers, scaler=scaler)
    x, _ = data(torch.float32)[1]
    for window in stepper.windows([x] * 4, size={"left": 2, "right": 4}):
        for piece in window:
            with no_sync():
                window.backward(left(piece).square().mean(), items=9, optimizer="left")
                window.backward(right(piece).square().mean(), items=9, optimizer="right")
    assert [u.skipped for u in window.updates] == [None] * 3
    assert scaler.get_scale() == 16.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own, while it compiles
def test_compiled_models_without_a_graph_break() -> None:
    model = net(torch.float32)
    start = copy.deepcopy(model)
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, fullgraph=True)
    batches = [batch for batch in data(torch.float32) if len(batch[0]) == 9] * 4
    for one, forward in ((model, compiled), (plain, plain)):
        stepper = instep.Stepper(one, torch.optim.SGD(one.parameters(), lr=0.1), precision="bf16")
        for window in stepper.windows(batches, size=4):
            for x, y in window:
                loss = F.cross_entropy(forward(x), y, ignore_index=IGNORED)
                window.backward(loss, items=(y != IGNORED).sum())
            assert window.skipped is None
    assert error(start, model, plain) < 2e-2


def test_verify_on_the_device() -> None:
    model = net(torch.float32)
    stepper = instep.Stepper(model, torch.optim.AdamW(model.parameters()))
    x, y = data(torch.float32)[1]
    found = instep.verify(
        stepper, (x, y), lambda b: (loss_of(model, *b), (b[1] != IGNORED).sum()), split=2
    )
    assert found.ok, str(found)
