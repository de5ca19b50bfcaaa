"""A loader that ends too early is told from one that ends."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import instep
from instep.distributed import shard
from instep.engine.ends import Expected
from instep.errors import InstepWarning, WindowError
from tests.engine.kit import mlp


class Numbers(Dataset):
    """Numbers, one of which ends the epoch by mistake."""

    def __init__(self, ends_at=None, samples=12):
        self.ends_at, self.samples = ends_at, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return next(iter([])) if index == self.ends_at else index


def ending(batch):
    if 5 in batch:
        raise StopIteration
    return torch.tensor(batch)


def trained(loader, *, style="windows", size=2):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    came = []

    def loss(batch):
        return model(torch.ones(1, 5).double()).mean()

    if style == "function":
        for batch in stepper.batches(loader):
            came.append(batch)
            stepper.step(batch, lambda batch: (loss(batch), 1))
        return came
    for window in stepper.windows(loader, size=size):
        for batch in window:
            came.append(batch)
            window.backward(loss(batch), items=1)
    return came


@pytest.mark.parametrize("style", ["windows", "function"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ends_at", [0, 5, 11])
def test_an_epoch_that_ends_early_is_an_error(workers, ends_at, style):
    options = {"multiprocessing_context": "fork", "timeout": 60} if workers else {}
    loader = DataLoader(Numbers(ends_at), 2, num_workers=workers, **options)
    words = rf"the loader ended after {ends_at // 2} of 6 batches"
    with pytest.raises(WindowError, match=words):
        trained(loader, style=style)


@pytest.mark.parametrize(
    "make",
    [
        lambda data: DataLoader(data, 2, collate_fn=ending),
        lambda data: DataLoader(data, 2, collate_fn=ending, shuffle=True),
        lambda data: DataLoader(data, 5, collate_fn=ending, drop_last=True),
        lambda data: shard(DataLoader(data, 2, collate_fn=ending), rank=0, world=1),
        lambda data: shard(DataLoader(data, 2, collate_fn=ending, shuffle=True)),
        lambda data: shard(DataLoader(data, batch_sampler=Ragged(), collate_fn=ending)),
    ],
    ids=["in order", "shuffled", "without the last", "dealt", "dealt, shuffled", "dealt batches"],
)
def test_also_where_batches_are_made(make):
    with pytest.raises(WindowError, match="the loader ended after"):
        trained(make(Numbers()))


class Ragged(Sampler):
    """Batches of which there are about as many as it says."""

    def __init__(self):
        self.epoch = 0

    def __len__(self):
        return 40

    def __iter__(self):
        self.epoch += 1
        return iter([[0, 5], [1], [2, 3]][: self.epoch + 1])


class Stream(IterableDataset):
    def __len__(self):
        return 40

    def __iter__(self):
        return iter(range(8))


class Choosy(DataLoader):
    def __iter__(self):
        return itertools.islice(super().__iter__(), 2)


class Sparing(DataLoader):
    def _get_iterator(self):
        return itertools.islice(super()._get_iterator(), 2)


class About(RandomSampler):
    def __len__(self):
        return 40


DATA = Numbers()


@pytest.mark.parametrize(
    ("loader", "came"),
    [
        (DataLoader(DATA, 2), 6),
        (DataLoader(DATA, 5), 3),
        (DataLoader(DATA, 5, drop_last=True), 2),
        (DataLoader(DATA, None), 12),
        (DataLoader(DATA, None, sampler=SubsetRandomSampler([1, 2])), 2),
        (DataLoader(DATA, 2, sampler=RandomSampler(DATA, num_samples=7)), 4),
        (DataLoader(DATA, 2, sampler=RandomSampler(DATA, True, 40)), 20),
        (DataLoader(DATA, 2, sampler=WeightedRandomSampler([1.0] * 12, 7)), 4),
        (DataLoader(DATA, 2, sampler=DistributedSampler(DATA, 5, 1)), 2),
        (DataLoader(DATA, 2, sampler=DistributedSampler(DATA, 5, 1, drop_last=True)), 1),
        (DataLoader(DATA, 2, sampler=About(DATA)), 6),
        (DataLoader(DATA, 2, sampler=[3, 4, 5]), 2),
        (DataLoader(DATA, batch_sampler=Ragged()), 2),
        (DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 5, False)), 3),
        (DataLoader(Stream(), 2), 4),
        (Choosy(DATA, 2), 2),
        (Sparing(DATA, 2), 2),
        ([1, 2, 3], 3),
        (itertools.islice(DataLoader(DATA, 2), 3), 3),
        (shard(DataLoader(DATA, 2, shuffle=True)), 6),
        (shard(DataLoader(DATA, batch_sampler=Ragged())), 2),
        (shard(DataLoader(Stream(), 2)), 4),
    ],
)
def test_nobody_hears_of_it_where_all_is_well(loader, came):
    assert len(trained(loader, style="function")) == came


def test_fewer_samples_than_a_batch_are_said_to_be_none():
    with pytest.warns(InstepWarning, match="gave no batch") as caught:
        assert trained(DataLoader(DATA, 20, drop_last=True), style="function") == []
    assert "drop_last=True" in str(caught[0].message)


@pytest.mark.parametrize(("rank", "came"), [(0, 3), (1, 2), (2, 2)])
def test_a_part_is_as_long_as_it_is(rank, came):
    loader = shard(DataLoader(range(7), 1, shuffle=True), rank=rank, world=3)
    expected = Expected(loader)
    assert expected.batches() is None
    assert len(list(loader)) == came
    expected.begin()
    assert expected.batches() == came
    loader.sampler.begins_at = 3
    expected = Expected(loader)
    list(loader)
    expected.begin()
    assert expected.batches() == len(range(3 + rank, 7, 3))


def test_a_dataset_that_grows_meanwhile():
    data = Numbers()
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for epoch in range(2):
        came = 0
        for batch in stepper.batches(DataLoader(data, 2, shuffle=True)):
            came += len(batch)
            data.samples += 2
        assert came == 12 * (epoch + 1)


def test_a_look_besides_at_a_dataset_that_grows():
    data = Numbers()
    loader = shard(DataLoader(data, 2))
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    came = 0
    for batch in stepper.batches(loader):
        came += len(batch)
        data.samples += 2
        next(iter(loader))
    assert came == 12


def test_batches_that_grow_meanwhile():
    loader = DataLoader(DATA, 2)
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    sizes = []
    for batch in stepper.batches(loader):
        sizes.append(len(batch))
        loader.batch_sampler.batch_size = 5
    assert sizes == [2, 5, 5]


class Unreadable(Numbers):
    def __getitem__(self, index):
        if index == 4:
            raise FileNotFoundError
        return index


@pytest.mark.filterwarnings("ignore:a window was thrown away")
def test_who_passes_over_a_batch_that_cannot_be_read_knows_of_it():
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    came = []
    for window in stepper.windows(DataLoader(Unreadable(), 2), size=3):
        batches = iter(window)
        while True:
            try:
                batch = next(batches, None)
            except FileNotFoundError:
                continue
            if batch is None:
                break
            came += batch.tolist()
            window.backward(model(torch.ones(1, 5).double()).mean(), items=1)
    assert came == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]


def test_a_loop_that_is_left_is_no_end():
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    came = []
    for _ in range(2):
        for batch in stepper.batches(DataLoader(DATA, 2)):
            came.append(batch.tolist())
            if 4 in batch:
                break
    assert came == [[0, 1], [2, 3], [4, 5]] * 2


def test_a_run_that_goes_on_counts_what_was_done():
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for batch in stepper.batches(DataLoader(DATA, 2)):
        if 4 in batch:
            state = stepper.state_dict()
            break
    stepper.load_state_dict(state)
    assert len(list(stepper.batches(DataLoader(DATA, 2)))) == 4


class Bar:
    """As tqdm's: what it gives is what is in it."""

    def __init__(self, iterable):
        self.iterable = iterable

    def __iter__(self):
        yield from self.iterable


Bar.__iter__.__module__ = "tqdm.std"


class Notebook(Bar):
    def __iter__(self):
        yield from super().__iter__()


Notebook.__iter__.__module__ = "tqdm.notebook"


def first(batch):
    return next(iter(batch[batch < 5].tolist()))


AROUND = {
    "tqdm": Bar,
    "tqdm in a notebook": Notebook,
    "enumerate": enumerate,
    "zip": lambda loader: zip(loader, DataLoader(DATA, 1), strict=False),
    "zip, behind": lambda loader: zip(range(40), itertools.count(), loader, strict=False),
    "map": lambda loader: map(list, loader),
    "tqdm of enumerate": lambda loader: Bar(enumerate(loader)),
    "enumerate of tqdm": lambda loader: enumerate(Bar(loader)),
    "zip of tqdm of zip": lambda loader: zip(Notebook(zip(loader, strict=True)), strict=True),
}


@pytest.mark.parametrize(
    ("how", "around"),
    [*((how, around) for how in ("plain", "dealt") for around in AROUND), ("workers", "tqdm")],
)
def test_inside_of_what_passes_on_every_batch(how, around):
    options = {"multiprocessing_context": "fork", "num_workers": 1} if how == "workers" else {}
    data = [Numbers(5), Numbers()]
    loaders = [DataLoader(each, 2, **options) for each in data]
    if how == "dealt":
        loaders = [shard(each) for each in loaders]
    with pytest.raises(WindowError, match=r"the loader ended after 2 of 6 batches"):
        trained(AROUND[around](loaders[0]))
    assert len(trained(AROUND[around](loaders[1]))) == 6


def test_a_function_that_ends_the_epoch():
    with pytest.raises(WindowError, match=r"the loader ended after 3 of 6 batches"):
        trained(map(first, DataLoader(DATA, 2)))


def begun(loader, batches):
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    return iterator


def generated(loader):
    yield from loader


def started(generator):
    next(generator)
    return generator


@pytest.mark.parametrize(
    ("loader", "came"),
    [
        (zip(DataLoader(DATA, 2), DataLoader(range(8), 2), strict=False), 4),
        (zip(DataLoader(DATA, 2), range(3), strict=False), 3),
        (zip([1, 2], DataLoader(DATA, 2), strict=False), 2),
        (zip(DataLoader(DATA, 2), (1, 2), itertools.count(), strict=False), 2),
        (zip(DataLoader(DATA, 2), itertools.islice(itertools.count(), 2), strict=False), 2),
        (zip(DataLoader(DATA, 2), {1: 1}, strict=False), 1),
        (zip(DataLoader(DATA, 2), begun(DataLoader(DATA, 2), 4), strict=False), 2),
        (begun(DataLoader(DATA, 2), 2), 4),
        (begun(shard(DataLoader(DATA, 2)), 2), 4),
        (enumerate(DataLoader(Stream(), 2)), 4),
        (enumerate(shard(DataLoader(Stream(), 2))), 4),
        (enumerate(shard([1, 2, 3])), 3),
        (enumerate(Choosy(DATA, 2)), 2),
        (zip(Sparing(DATA, 2), strict=True), 2),
        (Bar(itertools.islice(DataLoader(DATA, 2), 3)), 3),
        (Bar([1, 2, 3]), 3),
        (filter(torch.any, DataLoader(DATA, 1)), 11),
        (zip(generated([1, 2]), DataLoader(DATA, 2), strict=False), 2),
        (enumerate(started(iter(Bar(DataLoader(DATA, 2))))), 5),
        (itertools.chain(DataLoader(DATA, 2), [1]), 7),
    ],
)
def test_what_is_inside_may_end_as_it_does(loader, came):
    assert len(trained(loader, style="function")) == came


def test_many_things_around_are_not_looked_into():
    loader = DataLoader(Numbers(5), 2)
    for _ in range(20):
        loader = enumerate(loader)
    assert len(trained(loader, style="function")) == 2


def test_a_run_inside_of_something_that_goes_on():
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _, batch in stepper.batches(enumerate(DataLoader(DATA, 2))):
        if 4 in batch:
            state = stepper.state_dict()
            break
    stepper.load_state_dict(state)
    assert len(list(stepper.batches(enumerate(DataLoader(DATA, 2))))) == 4
    stepper.load_state_dict(state)
    with pytest.raises(WindowError, match=r"the loader ended after 4 of 6 batches"):
        list(stepper.batches(enumerate(DataLoader(Numbers(8), 2))))
