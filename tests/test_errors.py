"""Warnings point at the user's line, however deep in instep they arise."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

import instep
from instep.errors import InstepWarning


def line_of(function: object, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if text in line)


def test_a_warning_about_a_scheduler_is_at_the_window_that_steps():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler)

    def loop():
        for window in stepper.windows([torch.ones(3, 2)] * 4, size=2):
            for x in window:
                window.backward(model(x).mean(), items=len(x))
            scheduler.step()

    with pytest.warns(InstepWarning, match="moves faster") as caught:
        loop()
    assert Path(caught[0].filename) == Path(__file__)
    assert caught[0].lineno == line_of(loop, "for x in window")


def test_a_warning_about_patches_is_at_the_step():
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.GroupNorm(1, 2))
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    split = instep.Patches(16, approximate=True)

    def loop():
        stepper.step(torch.randn(1, 1, 32, 32), lambda x: model(x).square().mean(), split=split)

    with pytest.warns(InstepWarning, match="do not add up") as caught:
        loop()
    assert Path(caught[0].filename) == Path(__file__)
    assert caught[0].lineno == line_of(loop, "stepper.step")
