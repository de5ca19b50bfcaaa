from __future__ import annotations

import torch

from instep.watching.spelling import spelled


def made():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    return torch.optim.lr_scheduler.StepLR(optimizer, 3)


class Engine:
    def __init__(self):
        self.scheduler = made()

    def name(self):
        return spelled(self.scheduler, ())


class Prepared:
    """As accelerate wraps them."""

    def __init__(self, scheduler):
        self.scheduler = scheduler

    def get_last_lr(self):
        return self.scheduler.get_last_lr()


def test_whoever_has_a_scheduler_does_not_stand_for_it():
    assert Engine().name() == "self.scheduler"


def test_a_wrapper_stands_for_what_it_wraps():
    kept = [made()]
    prepared = Prepared(kept[0])
    assert spelled(kept[0], ()) == "prepared"
    assert prepared.get_last_lr() == [0.1]
