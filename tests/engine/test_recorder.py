"""The engine's trace: the window's order, the user's lines, and nothing when it is off."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import instep
from instep.trace import Trace, windows
from tests.engine.kit import batches, mean_loss, mlp

DATA = batches([3, 2, 4])


def train(**options) -> Trace:
    trace = Trace()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler, trace=trace, **options)
    for window in stepper.windows(DATA, size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
    return trace


def test_events_come_in_the_order_of_the_window():
    micro = ["drawn", "backward"]
    close = ["clip", "step", "schedule", "zero"]
    expected = [
        "window-opened",
        *micro,
        *micro,
        *close,
        "window-opened",
        *micro,
        *close,
        "epoch-end",
    ]
    assert [event.kind for event in train(clip_norm=1.0)] == expected


def test_a_scaler_adds_its_events():
    kinds = [event.kind for event in train(scaler=torch.amp.GradScaler("cpu"), clip_value=1.0)]
    first_close = kinds[5:11]
    assert first_close == ["unscale", "clip", "step", "schedule", "zero", "scaler-update"]


def test_events_name_the_users_lines():
    trace = train()
    lines = Path(__file__).read_text().splitlines()
    for kind, text in {"backward": "window.backward(", "step": "for x, y in window"}.items():
        for event in trace.of(kind):
            assert event.place is not None
            assert Path(event.place.path).name == Path(__file__).name
            assert text in lines[event.place.line - 1]


def test_windows_rebuilt_from_the_trace_are_those_of_the_engine():
    rebuilt = windows(train())["optimizer"]
    closed = [record for record in rebuilt if record.closed_by == "step"]
    assert [(record.micro_batches, record.items) for record in closed] == [(2, 5), (1, 4)]
    assert all(record.leftover == 0 for record in rebuilt)


def test_discarded_and_skipped_windows_are_told():
    trace = Trace()
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), trace=trace)
    for window in stepper.windows(DATA, size=3):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
            break
        break
    with stepper.window() as window:
        pass
    with pytest.warns(instep.InstepWarning), stepper.window() as window:
        window.backward(mean_loss(model, *DATA[0]) * torch.nan, items=3)
    assert [event.reason for event in trace.of("window-discarded")] == ["discarded"]
    assert [event.skipped for event in trace.of("step")] == ["empty", "non-finite"]


def test_a_device_count_stays_unknown_until_the_step(monkeypatch):
    from tests.engine.kit import pretend_device

    pretend_device(monkeypatch)
    trace = Trace()
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), trace=trace)
    with stepper.window() as window:
        window.backward(mean_loss(model, *DATA[0]), items=torch.tensor(3))
    (backward,), (step,) = trace.of("backward"), trace.of("step")
    assert backward.items is None
    assert step.items == 3
    assert step.loss == pytest.approx(window.loss)
