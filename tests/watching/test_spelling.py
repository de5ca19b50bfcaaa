from __future__ import annotations

import torch

from instep.watching.spelling import spelled
from tests.watching.jobs import run


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


def test_the_first_argument_of_a_method_has_attributes_whatever_it_is_called():
    class Pair:
        def __init__(me):  # people do
            me.first, me.second = made(), made()

        def names(me):
            return [spelled(me.first, ()), spelled(me.second, ())]

    def of(engine, thing):
        return spelled(thing, ())

    engine = Engine()
    assert Pair().names() == ["me.first", "me.second"]
    assert of(engine, engine.scheduler) == "thing"


def test_optimizers_without_a_name_are_told_apart():
    source = """
parts = {"a": torch.nn.Linear(8, 3), "b": torch.nn.Linear(8, 3)}
steps = {name: torch.optim.Adam(part.parameters()) for name, part in parts.items()}
for update in range(8):
    for name in parts:
        loss = parts[name](torch.randn(4, 8)).square().mean()
        if name == "a":
            steps[name].zero_grad()
        loss.backward()
        steps[name].step()
"""
    job = run(source)
    assert [*job.series.updates] == ["adam", "adam 2"]
    [finding] = job.findings
    assert finding.message.startswith("`adam 2` is never cleared")
