"""The copy under the probe: weights that hide nothing, and the model itself untouched."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import nn

from instep.splits.subject import Subject


def test_scales_that_start_at_zero_are_seen_in_the_copy_only():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 3, padding=1)
            self.gamma = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return x + self.gamma * self.conv(x)

    model = Scaled()
    before = [p.clone() for p in model.parameters()]
    subject = Subject(model, [torch.zeros(1, 1, 8, 8)], [[Fraction(1), Fraction(1)]])
    assert 0.5 <= float(subject.model.gamma.detach()) <= 1.5
    assert float(subject.model.conv.bias.detach()) == 0
    assert subject.model.conv.weight.dtype is torch.float64
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_buffers_and_random_numbers_are_the_same_in_every_run():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x + torch.randn_like(x) + self.calls

    subject = Subject(Noisy(), [torch.zeros(1, 1, 4, 4)], [[Fraction(1), Fraction(1)]])
    images = subject.images([6, 5])
    assert images[0].shape == (1, 1, 6, 5)
    first, again, other = (subject.outputs(images, seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert subject.changes_buffers(images)
