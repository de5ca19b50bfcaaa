"""What of captured windows can be tested without a device: the rest is in tests/gpu."""

from __future__ import annotations

import pytest
import torch

import instep
from instep.engine.captured import Captures
from instep.errors import SetupError


def test_capture_needs_flat_buffers():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(SetupError, match="without fused=True"):
        instep.Stepper(model, optimizer, capture=True)


def test_functions_are_known_by_code_and_closure():
    captures = Captures()
    model, other = object(), object()

    def made(inside, weight):
        return lambda piece: (inside, weight, piece)

    first = captures._identity(made(model, 0.5))
    assert captures._identity(made(model, 0.5)) == first
    assert captures._identity(made(model, 0.25)) != first
    assert captures._identity(made(other, 0.5)) != first
    assert captures._identity(lambda piece: piece) != first
