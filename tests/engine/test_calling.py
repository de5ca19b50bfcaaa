"""A loss function is asked how it is called before anything changes."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import instep
from instep.engine.calling import require_one_argument, require_two_arguments
from instep.errors import SplitError


class Criterion(nn.Module):
    def forward(self, piece):
        return piece


ONE = [
    lambda piece: piece,
    lambda *pieces: pieces,
    lambda piece, scale=1.0: piece * scale,
    functools.partial(lambda model, piece: model(piece), abs),
    Criterion(),
    abs,
]


@pytest.mark.parametrize("loss_fn", ONE)
def test_what_takes_a_piece_is_taken(loss_fn):
    require_one_argument(loss_fn)


@pytest.mark.parametrize("loss_fn", [lambda x, y: x, lambda: 0, lambda *, piece: piece])
def test_what_takes_something_else_is_refused(loss_fn):
    with pytest.raises(SplitError, match="cannot be called with one piece of the batch"):
        require_one_argument(loss_fn)


def test_two_passes_take_two():
    require_two_arguments(lambda representations, batch: representations)
    with pytest.raises(SplitError, match="write it as loss_fn"):
        require_two_arguments(lambda piece: piece)


def test_nothing_has_changed_when_a_step_refuses():
    model = nn.Linear(2, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = model.weight.clone()
    with pytest.raises(SplitError, match="x, y = piece"):
        stepper.step((torch.ones(4, 2), torch.ones(4, 1)), lambda x, y: model(x).sum(), split=2)
    assert torch.equal(model.weight, before)
    assert stepper.step(torch.ones(4, 2), lambda piece: model(piece).mean(), split=2).items == 4
