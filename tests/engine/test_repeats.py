"""Epochs in one order, because set_epoch was never called: said once, and only where it is so."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

import instep
from instep.engine.repeats import Repeats
from instep.errors import InstepWarning
from tests.engine.kit import mlp


def loader_of(kind="plain", *, shuffle=True, samples=8):
    data = torch.arange(samples)
    sampler = DistributedSampler(data, 2, 0, shuffle=shuffle)
    if kind == "own":
        sampler = Own(data, 2, 0)
    if kind == "batches":
        return DataLoader(data, batch_sampler=BatchSampler(sampler, 2, drop_last=False))
    return DataLoader(data, None if kind == "samples" else 2, sampler=sampler)


class Own(DistributedSampler):
    """One that counts by itself."""

    def __iter__(self):
        self.epoch += 1
        return super().__iter__()


def warned(train):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train()
    return [str(w.message) for w in caught if issubclass(w.category, InstepWarning)]


def trained(loader, tell=None, *, around=iter, epochs=4, counted=False, style="windows"):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss = lambda batch: model(torch.ones(1, 5).double()).mean()

    def train():
        for epoch in stepper.epochs(epochs) if counted else range(epochs):
            if tell is not None:
                tell(epoch)
            if style == "function":
                for batch in stepper.batches(around(loader)):
                    stepper.step(batch, lambda batch: (loss(batch), 1))
                continue
            for window in stepper.windows(around(loader), size=2):
                for batch in window:
                    window.backward(loss(batch), items=1)

    return warned(train)


SAID = "a DistributedSampler gives every epoch in the same order."


@pytest.mark.parametrize("style", ["windows", "function"])
@pytest.mark.parametrize("kind", ["plain", "batches", "samples"])
def test_it_is_said_once(kind, style):
    (text,) = trained(loader_of(kind), style=style)
    assert text.startswith(SAID)
    assert "3 loops in a row, with its epoch at 0 in each" in text
    assert "set_epoch(epoch)" in text


@pytest.mark.parametrize("around", [lambda one: one, enumerate, lambda one: map(torch.neg, one)])
def test_what_is_around_does_not_matter(around):
    (text,) = trained(loader_of(), around=around)
    assert text.startswith(SAID)


def test_at_the_second_where_epochs_are_counted():
    assert trained(loader_of(), epochs=1, counted=True) == []
    (text,) = trained(loader_of(), epochs=2, counted=True)
    assert "2 loops in a row" in text


@pytest.mark.parametrize("counted", [True, False])
def test_who_tells_the_epoch_hears_nothing(counted):
    loader = loader_of()
    assert trained(loader, loader.sampler.set_epoch, counted=counted) == []


def test_two_loops_of_one_epoch():
    loader = loader_of()
    tell = lambda loop: loader.sampler.set_epoch(loop // 2)
    assert trained(loader, tell, epochs=6) == []


@pytest.mark.parametrize(
    "loader",
    [
        loader_of(shuffle=False),
        loader_of("own"),
        loader_of(samples=1),
        DataLoader(torch.arange(8), 2, shuffle=True),
        [torch.ones(2), torch.ones(1)],
    ],
    ids=["in order", "of a user's", "one sample", "one process", "a list"],
)
def test_nothing_is_said_of_others(loader):
    assert trained(loader) == []


def test_a_new_loader_for_each_epoch_is_another():
    assert trained(None, around=lambda _: loader_of()) == []


def test_a_run_that_goes_on_in_its_epoch_has_not_begun_again():
    repeats, loader = Repeats(), loader_of()
    assert repeats.look(loader, 0) == ""
    assert repeats.look(loader, 0) == ""
    loader.sampler.set_epoch(1)
    assert repeats.look(loader, 0) == ""
    loader.sampler.set_epoch(0)
    assert repeats.look(loader, 1) == ""
    assert "2 loops" in repeats.look(loader, 2)

    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def resume():
        for _ in range(4):
            for _batch in stepper.batches(loader):
                state = stepper.state_dict()
                break
            stepper.load_state_dict(state)

    assert warned(resume) == []
