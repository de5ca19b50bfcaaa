"""A schedule that is stepped beyond its end was not meant in steps."""

from __future__ import annotations

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR

from instep.watching.horizons import is_outlived


@pytest.fixture
def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)


def stepped(scheduler, times):
    for _ in range(times):
        scheduler.optimizer.step()
        scheduler.step()
    return scheduler


@pytest.mark.parametrize(("times", "outlived"), [(0, False), (11, False), (12, True)])
def test_the_end_of_a_cosine(optimizer, times, outlived):
    assert is_outlived(stepped(CosineAnnealingLR(optimizer, 12), times), set()) is outlived


@pytest.mark.parametrize("length", [12, 6])
def test_one_that_is_as_long_as_epochs_begins_again(optimizer, length):
    assert not is_outlived(stepped(CosineAnnealingLR(optimizer, 12), 30), {length})


def test_a_warm_up_ends_on_purpose(optimizer):
    assert not is_outlived(stepped(LinearLR(optimizer, total_iters=3), 9), set())
