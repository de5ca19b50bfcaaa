"""Watch on loops whose parts Accelerate has prepared."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.peers.kit import loader, net, watched

accelerate = pytest.importorskip("accelerate")


def train(*, wrong: str = "", size: int = 1, precision: str = "no") -> nn.Module:
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    accelerator = accelerate.Accelerator(
        cpu=True, gradient_accumulation_steps=size, mixed_precision=precision
    )
    plain = net()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    inner = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    model, optimizer, batches, scheduler = accelerator.prepare(plain, optimizer, loader(), inner)
    for _ in range(3):
        for x, y in batches:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                if wrong == "divided twice":
                    loss = loss / size
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if wrong == "bare scheduler":
                    inner.step()
                else:
                    scheduler.step()
                if wrong != "uncleared":
                    optimizer.zero_grad()
    return plain


@pytest.mark.parametrize("size", [1, 4, 3])  # with 3, the last window of an epoch is short
def test_a_right_loop(size):
    assert watched(lambda: train(size=size)) == []


def test_a_right_loop_in_mixed_precision():
    assert watched(lambda: train(size=4, precision="bf16")) == []


@pytest.mark.parametrize(
    ("wrong", "code", "line"),
    [
        ("uncleared", "INS101", "accelerator.backward(loss)"),
        ("bare scheduler", "INS402", "inner.step()"),
        ("divided twice", "INS205", "accelerator.backward(loss)"),
    ],
)
def test_a_wrong_loop(wrong, code, line):
    assert watched(lambda: train(wrong=wrong, size=4)) == [(code, line)]
