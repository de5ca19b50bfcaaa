"""Samples with a place in a dataset: what each rank deals out is compared, and goes on."""

from __future__ import annotations

import random
import warnings

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
)

import instep
from instep.errors import InstepWarning, WindowError
from tests.distributed.kit import spread, values
from tests.distributed.test_streams import working
from tests.engine.kit import mlp

SAMPLES = 23


class Numbers(Dataset):
    def __init__(self, count=SAMPLES):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return int(index)


class Shuffled(Sampler):
    """A sampler that draws from a generator of its own, or from all that are there."""

    def __init__(self, seed=None):
        self.random = None if seed is None else random.Random(seed)

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        order = torch.randperm(SAMPLES).tolist()
        (self.random or random).shuffle(order)
        return iter(order)


class ByEpoch(Shuffled):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        return iter(torch.randperm(SAMPLES, generator=generator).tolist())


def in_batches(size, sampler=None):
    chosen = sampler or SequentialSampler(Numbers())
    return DataLoader(Numbers(), batch_sampler=BatchSampler(chosen, size, drop_last=False))


OTHER = {
    "one sample more": lambda own: DataLoader(Numbers(SAMPLES + own), 2),
    "one sample more, shuffled": lambda own: DataLoader(Numbers(SAMPLES + own), 2, shuffle=True),
    "larger batches": lambda own: in_batches(2 + own),
    "larger batches, shuffled": lambda own: in_batches(2 + own, RandomSampler(Numbers())),
    "another order": lambda own: DataLoader(
        Numbers(), 2, sampler=[*range(SAMPLES)][:: 1 - 2 * own]
    ),
    "a generator of its own": lambda own: DataLoader(Numbers(), 2, sampler=Shuffled(own)),
    "other seeds": lambda own: DataLoader(
        Numbers(), 2, shuffle=True, generator=torch.Generator().manual_seed(own)
    ),
}
SAME = {
    "in order": lambda: DataLoader(Numbers(), 2),
    "shuffled": lambda: DataLoader(Numbers(), 2, shuffle=True),
    "all that is there": lambda: DataLoader(Numbers(), 2, sampler=Shuffled()),
    "weighted": lambda: DataLoader(
        Numbers(), 2, sampler=WeightedRandomSampler([1.0] * SAMPLES, SAMPLES, replacement=False)
    ),
    "told the epoch": lambda: DataLoader(Numbers(), 2, sampler=ByEpoch()),
    "batches": lambda: in_batches(2),
    "shuffled batches": lambda: in_batches(2, RandomSampler(Numbers())),
    "one by one": lambda: DataLoader(Numbers(), None, sampler=RandomSampler(Numbers())),
    "a subset": lambda: DataLoader(Subset(Numbers(99), range(SAMPLES)), 2, shuffle=True),
    "workers": lambda: DataLoader(Numbers(), 2, shuffle=True, **working(2)),
}


def numbers_of(batch):
    return torch.as_tensor(batch).flatten().tolist()


def drawn_by(stepper, model, loader, style):
    def loss(batch):
        return model(torch.ones(1, 5).double()).mean() * 0.1, len(numbers_of(batch))

    if style == "function":
        for batch in stepper.batches(loader):
            stepper.step(batch, loss)
            yield from numbers_of(batch)
        return
    for window in stepper.windows(loader, size=2):
        for batch in window:
            window.backward(loss(batch)[0], items=loss(batch)[1])
            yield from numbers_of(batch)


def train(rank, world, make, style, epochs):
    """Epochs of what is dealt out anew in each; a validation of another length between them."""
    torch.manual_seed(rank)
    random.seed(rank)
    plain = mlp()
    model = spread(plain, "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.01))
    start, said, seen = values(plain), "", []
    loader, valid = make(rank), DataLoader(Numbers(7 + rank), 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for epoch in stepper.epochs(epochs):
                dealt = instep.distributed.shard(loader)
                if isinstance(loader.sampler, ByEpoch):
                    dealt.sampler.set_epoch(epoch // 2)
                seen.append(list(drawn_by(stepper, model, dealt, style)))
                assert list(instep.distributed.shard(valid))
        except WindowError as error:
            said = str(error)
    warned = [str(w.message) for w in caught if w.category is InstepWarning]
    return said, warned, values(plain) == start, seen


def train_other(rank, world, how, style):
    return train(rank, world, lambda own: OTHER[how](int(own == world - 1)), style, 1)


def train_same(rank, world, how, style):
    return train(rank, world, lambda own: SAME[how](), style, 4)


@pytest.mark.parametrize("style", ["windows", "function"])
@pytest.mark.parametrize("how", OTHER)
def test_what_is_dealt_out_otherwise_is_said_before_anything_is_trained(two, how, style):
    for said, _, is_as_it_was, seen in two.run(train_other, how, style):
        assert said.startswith("rank 1 and rank 0 draw different orders from shard()")
        assert (": of 23 and 24 samples or batches." in said) == how.startswith("one sample more")
        assert (": of 8 and 12 samples or batches." in said) == how.startswith("larger batches")
        assert is_as_it_was
        assert seen == []


def test_the_one_that_differs_is_named(three):
    for said, *_ in three.run(train_other, "one sample more, shuffled", "windows"):
        assert said.startswith("rank 2 and rank 0 draw different orders from shard()")


@pytest.mark.parametrize(
    ("how", "style"), [*[(how, "windows") for how in SAME], ("shuffled", "function")]
)
def test_what_is_dealt_out_alike_is_left_alone(crew, how, style):
    found = crew.run(train_same, how, style)
    epochs = []
    for epoch in range(4):
        parts = [seen[epoch] for said, warned, _, seen in found if said == "" and warned == []]
        assert sorted(number for part in parts for number in part) == list(range(SAMPLES))
        epochs.append(tuple(map(tuple, parts)))
    # One that is told its epoch has the order of that, which two of them share here.
    assert len({*epochs}) == {"in order": 1, "batches": 1, "told the epoch": 2}.get(how, 4)


def go_on(rank, world, path, how, place, stop):
    """Three epochs, ended behind a window of them and gone on with, as new processes would."""

    def build():
        torch.manual_seed(rank)
        plain = torch.nn.Sequential(torch.nn.Dropout(0.5), mlp())
        model = spread(plain, "ddp")
        loader = SAME[how]()
        stepper = instep.Stepper(model, torch.optim.AdamW(model.parameters(), lr=0.01))
        return plain, model, stepper, loader

    def run(plain, model, stepper, loader, until=None):
        once = instep.distributed.shard(loader)
        for epoch in stepper.epochs(3):
            dealt = once if place == "once" else instep.distributed.shard(loader)
            for window in stepper.windows(dealt, size=2):
                for batch in window:
                    seen.extend(numbers_of(batch))
                    rows = torch.as_tensor(batch).double().reshape(-1, 1).expand(-1, 5)
                    window.backward(model(rows).square().mean(), items=len(rows))
                if window.index == until:
                    stepper.save(path)
                    return
            if until == -1 - epoch:
                stepper.save(path)
                return

    seen = []
    straight = build()
    run(*straight)
    whole, seen = seen, []
    run(*build(), until=stop)
    resumed = build()
    resumed[2].load(path)
    run(*resumed)
    return whole == seen, values(straight[0]) == values(resumed[0]), whole


@pytest.mark.parametrize("how", ["shuffled", "shuffled batches", "weighted", "workers"])
@pytest.mark.parametrize("place", ["anew", "once"])
def test_what_is_dealt_out_anew_goes_on_bit_for_bit(two, tmp_path, how, place):
    stops = [5] if how == "workers" else [1, 3, -1, 5, -2, 8]
    for stop in stops:
        found = two.run(go_on, str(tmp_path / f"run {stop}"), how, place, stop)
        assert all(is_same_data and is_same_model for is_same_data, is_same_model, _ in found)
        assert sorted(found[0][2] + found[1][2]) == sorted([*range(SAMPLES)] * 3)
