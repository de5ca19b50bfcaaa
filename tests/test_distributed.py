"""Every sample is on exactly one rank, in any number of epochs."""

from __future__ import annotations

import itertools
import math
import pickle
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    WeightedRandomSampler,
)
from torch.utils.data.datapipes.iter import IterableWrapper

import instep
from instep.distributed import shard
from instep.engine.feed import Feed
from instep.errors import SetupError, StateError


def drawn(loader):
    return [batch.tolist() for batch in loader]


def flat(batches):
    return list(itertools.chain.from_iterable(batches))


@given(
    samples=st.integers(0, 40),
    world=st.integers(1, 7),
    size=st.integers(1, 5),
    shuffle=st.booleans(),
)
def test_no_sample_is_missing_or_twice(samples, world, size, shuffle):
    # An empty dataset cannot be shuffled, in torch.
    shuffle = shuffle and samples > 0
    loaders = [
        shard(DataLoader(range(samples), size, shuffle=shuffle), rank=rank, world=world)
        for rank in range(world)
    ]
    epochs = []
    for _ in range(2):
        found = [drawn(loader) for loader in loaders]
        assert sorted(flat(flat(found))) == list(range(samples))
        assert [len(batches) for batches in found] == [len(loader) for loader in loaders]
        assert max(map(len, found)) - min(map(len, found)) <= 1
        # Together, the n-th batches of the ranks are the n-th batch of one process.
        epochs.append(
            [x for turn in itertools.zip_longest(*map(flat, found)) for x in turn if x is not None]
        )
    assert shuffle or epochs[0] == list(range(samples))
    if shuffle and samples > 10:
        assert epochs[0] != epochs[1] != list(range(samples))


class Odd(Sampler):
    """A sampler that draws from whatever it likes."""

    def __iter__(self):
        order = np.random.permutation(9).tolist()
        random.shuffle(order)
        return iter(torch.tensor(order)[torch.randperm(9)].tolist())

    def __len__(self):
        return 9


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(range(9), 2, sampler=Odd()),
        lambda: DataLoader(range(9), 2, sampler=RandomSampler(range(9))),
        lambda: DataLoader(range(9), 2, shuffle=True, generator=torch.Generator()),
        lambda: DataLoader(range(9), batch_sampler=BatchSampler(Odd(), 2, drop_last=False)),
        lambda: DataLoader(range(9), batch_size=None, sampler=Odd()),
    ],
)
def test_orders_are_the_same_on_all_ranks_and_cost_no_random_numbers(make):
    loaders = []
    for rank in range(3):
        # Ranks have random states of their own.
        torch.manual_seed(rank)
        random.seed(rank)
        np.random.seed(rank)
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
        loader = make()
        own = loader.generator
        state = None if own is None else own.seed() and own.get_state()
        sharded = shard(loader, rank=rank, world=3, seed=5)
        loaders.append(sharded)
        iter(sharded.batch_sampler or sharded.sampler)
        list(sharded.batch_sampler or sharded.sampler)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]
        assert (np.random.get_state()[1] == before[2]).all()
        assert own is None or torch.equal(own.get_state(), state)
    everything = [x for loader in loaders for x in loader]
    numbers = [n for x in everything for n in (x.tolist() if isinstance(x, torch.Tensor) else [x])]
    assert sorted(numbers) == list(range(9))


def test_the_seed_chooses_the_order():
    one, same, other = (
        drawn(shard(DataLoader(range(50), 5, shuffle=True), rank=0, world=2, seed=seed))
        for seed in (1, 1, 2)
    )
    assert one == same != other


ALL = range(20)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def of_all(make, *, world=3, epochs=3, **options):
    """What all ranks draw, in the order of their turns, epoch by epoch."""
    loaders = []
    for rank in range(world):
        torch.manual_seed(rank)
        loaders.append(shard(make(), rank=rank, world=world, **options))
    found = []
    for _ in range(epochs):
        turns = itertools.zip_longest(*(flat(drawn(loader)) for loader in loaders))
        found.append([x for turn in turns for x in turn if x is not None])
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: DataLoader(range(20), 2, shuffle=True, generator=seeded(seed)),
        lambda seed: DataLoader(
            range(20), 2, sampler=RandomSampler(range(20), generator=seeded(seed))
        ),
        lambda seed: DataLoader(
            range(20), 2, sampler=WeightedRandomSampler([1.0] * 20, 20, generator=seeded(seed))
        ),
    ],
    ids=["shuffle", "random", "weighted"],
)
def test_orders_are_those_of_the_loaders_own_generator(make):
    """The same as in one process that has the loader as it is, in every epoch."""
    alone = make(7)
    expected = [flat(drawn(alone)) for _ in range(3)]
    assert of_all(lambda: make(7)) == expected
    assert expected[0] != expected[1] != expected[2]
    assert of_all(lambda: make(8)) != expected
    # A seed that is given decides.
    assert of_all(lambda: make(7), seed=5) == of_all(lambda: make(8), seed=5) != expected


def anew(loader, rank, world, **options):
    """A loader of a part, made in the same line of the program each time."""
    return shard(loader, rank=rank, world=world, **options)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("kind", ["shuffled", "batches", "weighted", "seed", "generator"])
def test_a_loader_that_is_dealt_out_anew_in_every_epoch_goes_on(kind, world):
    options = {"seed": 3} if kind == "seed" else {}

    def make():
        if kind == "batches":
            return DataLoader(range(20), batch_sampler=BatchSampler(RandomSampler(ALL), 2, False))
        if kind == "weighted":
            sampler = WeightedRandomSampler([1.0] * 20, 20, replacement=False)
            return DataLoader(range(20), 2, sampler=sampler)
        own = seeded(4) if kind == "generator" else None
        return DataLoader(range(20), 2, shuffle=True, generator=own)

    given = [make() for _ in range(world)]
    once = [shard(make(), rank=rank, world=world, **options) for rank in range(world)]
    epochs = []
    for _ in range(4):
        parts = [drawn(anew(each, rank, world, **options)) for rank, each in enumerate(given)]
        assert parts == [drawn(each) for each in once]
        epochs.append(flat(flat(parts)))
        assert sorted(epochs[-1]) == list(range(20))
    assert len({*map(tuple, epochs)}) == 4


def test_parts_of_one_loader_are_those_of_one_order():
    """Ranks in one process, of one loader that all are given."""
    loader = DataLoader(range(9), 2, shuffle=True)
    epochs = []
    for _ in range(3):
        parts = [flat(drawn(anew(loader, rank, 2))) for rank in range(2)]
        assert sorted(flat(parts)) == list(range(9))
        epochs.append(tuple(parts[0]))
    assert len({*epochs}) == 3


def test_parts_that_are_there_at_once_take_turns_in_one_line_and_none_in_two():
    alone = shard(DataLoader(range(20), 2, shuffle=True), rank=0, world=1)
    expected = [drawn(alone) for _ in range(4)]
    loader = DataLoader(range(20), 2, shuffle=True)
    one, same = anew(loader, 0, 1), anew(loader, 0, 1)
    # Each pass has a whole order, also where they are drawn from by turns.
    begun = [*zip(one, same, strict=True)]
    found = [[pair[place].tolist() for pair in begun] for place in range(2)]
    assert found == expected[:2]
    # Who looks into the loader in another line moves nothing.
    other = shard(loader, rank=0, world=1)
    looked = drawn(other)
    assert looked not in expected
    assert [drawn(same), drawn(one)] == expected[2:]


class Idle(Odd):
    """A sampler that has a generator, and draws from others."""

    def __init__(self):
        self.generator = seeded(3)


@pytest.mark.parametrize("make", [Idle, lambda: BatchSampler(Idle(), 1, drop_last=False)])
def test_samplers_that_leave_their_generator_alone_have_a_new_order_each_time(make):
    def loader():
        made = make()
        if isinstance(made, BatchSampler):
            return DataLoader(range(9), batch_sampler=made)
        return DataLoader(range(9), 2, sampler=made)

    found = of_all(loader)
    assert all(sorted(epoch) == list(range(9)) for epoch in found)
    assert found[0] != found[1] != found[2] != found[0]


class ByEpoch(Sampler):
    """A sampler whose order depends on the epoch that it was told, as DistributedSampler's does."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = torch.randperm(12, generator=seeded(self.epoch))
        return iter(order.tolist())

    def __len__(self):
        return 12


class Batches(ByEpoch):
    """The same, for batches."""

    def __iter__(self):
        return iter([[number] for number in super().__iter__()])


KINDS = {
    "shuffle": lambda: DataLoader(range(12), 2, shuffle=True),
    "generator": lambda: DataLoader(range(12), 2, shuffle=True, generator=seeded(4)),
    "sampler": lambda: DataLoader(range(12), 2, sampler=ByEpoch()),
    "batches": lambda: DataLoader(range(12), batch_sampler=Batches()),
    "inside": lambda: DataLoader(range(12), batch_sampler=BatchSampler(ByEpoch(), 2, False)),
}


def told(loader, epoch):
    dealer = loader.sampler if hasattr(loader.sampler, "set_epoch") else loader.batch_sampler
    dealer.set_epoch(epoch)
    return loader


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_that_is_told_has_its_order(kind):
    def epoch(number, *, seed=None, before=0):
        parts = []
        for rank in range(3):
            torch.manual_seed(rank)
            loader = shard(KINDS[kind](), rank=rank, world=3, seed=seed)
            for _ in range(before):
                drawn(loader)
            parts.append(flat(drawn(told(loader, number))))
        return parts

    first, second = epoch(0), epoch(1)
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(12))
    assert first != second
    # Whatever was drawn before.
    assert epoch(1, before=2) == second
    if kind in ("shuffle", "generator"):
        assert epoch(1, seed=9) != second
        # Seeds and epochs do not make up for each other.
        assert epoch(1, seed=8) != epoch(0, seed=9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_position_finds_the_epoch_that_was_told(kind):
    def make():
        return shard(KINDS[kind](), rank=1, world=2)

    loader = make()
    drawn(told(loader, 0))
    feed = Feed(told(loader, 3))
    done = feed.take().tolist()
    feed.finish()
    position = feed.position()
    rest = [feed.take().tolist() for _ in range(2)]
    # Nobody has told the new loader, or something else.
    for again in (make(), told(make(), 0), told(make(), 3)):
        resumed = Feed(again, position)
        assert [resumed.take().tolist() for _ in range(2)] == rest
    assert done not in rest
    # The epoch after it, from the generators that it has left.
    following = [batch.tolist() for batch in told(loader, 4)]
    fresh = Feed(told(make(), 4), generators=feed.generators_now())
    assert [fresh.take().tolist() for _ in range(2)] == following[:2]


@pytest.mark.parametrize("kind", ["shuffle", "generator"])
def test_an_epoch_that_nobody_has_told_follows_the_one_before(kind):
    def make():
        return shard(KINDS[kind](), rank=1, world=2)

    loader = told(make(), 2)
    first = drawn(loader)
    feed = Feed(loader)
    found = [feed.take().tolist()]
    feed.finish()
    position = feed.position()
    found += [feed.take().tolist() for _ in range(2)]
    assert found != first
    again = Feed(make(), position)
    assert [again.take().tolist() for _ in range(2)] == found[1:]


class Epochs(IterableDataset):
    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(range(10 * self.epoch, 10 * self.epoch + 4))


def test_streams_and_iterables_are_told_the_epoch():
    loader = shard(DataLoader(Epochs(), 1), rank=1, world=2)
    loader.dataset.set_epoch(2)
    assert flat(drawn(loader)) == [21, 23]
    items = shard(Epochs(), rank=0, world=2)
    items.set_epoch(1)
    assert list(items) == [10, 12]
    shard([1, 2], rank=0, world=2).set_epoch(5)  # nobody to tell


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("world", [1, 2])
def test_workers_that_stay_are_told_the_epoch(method, world):
    if method != "fork" and world == 1:
        pytest.skip("slow to start, and the same")
    loader = DataLoader(
        Epochs(), 1, num_workers=1, persistent_workers=True, multiprocessing_context=method
    )
    dealt = shard(loader, rank=0, world=world)
    found = []
    for epoch in (2, 0, 0, 5):
        dealt.dataset.set_epoch(epoch)
        found.append(flat(drawn(dealt)))
    found.append(flat(drawn(dealt)))  # nobody has told
    assert found == [[10 * epoch + n for n in range(0, 4, world)] for epoch in (2, 0, 0, 5, 5)]


class Counting(Epochs):
    """A stream that counts epochs by itself where nobody tells."""

    def __iter__(self):
        yield from super().__iter__()
        self.epoch += 1


def test_workers_that_stay_are_told_the_same_epoch_again():
    options = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "fork"}
    there = shard(DataLoader(Counting(), 1, **options), rank=0, world=2)
    here = shard(DataLoader(Counting(), 1), rank=0, world=2)
    for told in (0, None, 0, 0):
        if told is not None:
            there.dataset.set_epoch(told)
            here.dataset.set_epoch(told)
        # Each of the two workers draws all of it.
        assert flat(drawn(there))[::2] == flat(drawn(here))


def tell_nine(worker):
    torch.utils.data.get_worker_info().dataset.set_epoch(9)


def test_a_worker_that_tells_itself_tells_nobody_else():
    loader = DataLoader(
        Epochs(), 1, num_workers=1, worker_init_fn=tell_nine, multiprocessing_context="fork"
    )
    dealt = shard(loader, rank=0, world=2)
    assert flat(drawn(dealt)) == [90, 92]
    assert dealt.dataset.epoch is None
    assert list(dealt.dataset) == [0, 2]


def test_samples_with_replacement_are_dealt_like_others():
    weights = [0.0, 1.0, 1.0]
    loaders = [
        shard(
            DataLoader(range(3), 2, sampler=WeightedRandomSampler(weights, 7)),
            rank=rank,
            world=2,
        )
        for rank in range(2)
    ]
    found = [flat(drawn(loader)) for loader in loaders]
    assert [len(each) for each in found] == [4, 3]
    assert set(flat(found)) == {1, 2}


def doubled(batch):
    return torch.tensor(batch) * 2


def test_everything_else_of_the_loader_stays():
    generator = torch.Generator()
    loader = DataLoader(
        range(10),
        batch_size=3,
        drop_last=True,
        collate_fn=doubled,
        num_workers=2,
        prefetch_factor=3,
        persistent_workers=True,
        generator=generator,
        timeout=20,
    )
    sharded = shard(loader, rank=1, world=2)
    assert sharded.batch_size == 3
    assert sharded.drop_last
    assert sharded.num_workers == 2
    assert sharded.prefetch_factor == 3
    assert sharded.persistent_workers
    assert sharded.generator is generator
    assert sharded.timeout == 20
    assert drawn(sharded) == [[2, 6, 10]]


class Numbers(IterableDataset):
    """Numbers, which its workers share."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 11, step))


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_are_strided(workers):
    loaders = [
        shard(DataLoader(Numbers(), 2, num_workers=workers), rank=rank, world=3)
        for rank in range(3)
    ]
    found = [flat(drawn(loader)) for loader in loaders]
    assert sorted(flat(found)) == list(range(11))
    if not workers:
        assert found[1] == [1, 4, 7, 10]
    with pytest.raises(TypeError, match="has no length"):
        len(loaders[0])


def test_any_iterable():
    assert list(shard([10, 11, 12], rank=1, world=2)) == [11]
    assert len(shard([10, 11, 12], rank=0, world=2)) == 2
    assert list(instep.distributed.shard([10, 11])) == [10, 11]


def test_a_saved_position_finds_the_epoch_again():
    def make():
        return shard(DataLoader(range(20), 2, shuffle=True), rank=1, world=2)

    loader = make()
    drawn(loader)
    feed = Feed(loader)
    first = [feed.take() for _ in range(2)]
    feed.finish()
    position = feed.position()
    rest = [feed.take() for _ in range(2)]
    again = Feed(make(), position)
    assert [again.take().tolist() for _ in range(3)] == [x.tolist() for x in [first[1], *rest]]


def test_a_plain_loader_in_the_place_of_a_dealt_one_is_told_of_shard():
    plain = DataLoader(range(20), 2, shuffle=True)
    feed = Feed(shard(plain, rank=0, world=1))
    feed.take()
    feed.finish()
    with pytest.raises(StateError, match=r"same loader: instep\.distributed\.shard\("):
        Feed(plain, feed.position())
    own = Feed(DataLoader(range(20), 2, shuffle=True, generator=torch.Generator()))
    with pytest.raises(StateError, match="with the same loader, or call"):
        Feed(plain, own.position())


@given(
    samples=st.integers(0, 60),
    world=st.integers(1, 7),
    batch=st.integers(1, 5),
    size=st.integers(1, 6),
)
def test_the_updates_of_an_epoch_are_known_before_it_is_dealt_out(samples, world, batch, size):
    """Those of the rank that has most: the page about schedulers says how many that are."""
    loader = DataLoader(range(samples), batch)
    own = [len(shard(loader, rank=rank, world=world)) for rank in range(world)]
    assert max(math.ceil(each / size) for each in own) == math.ceil(len(loader) / (world * size))
    dropped = DataLoader(range(samples), batch, drop_last=True)
    own = [len(shard(dropped, rank=rank, world=world)) for rank in range(world)]
    whole = math.ceil(samples / world) // batch
    assert max(math.ceil(each / size) for each in own) == math.ceil(whole / size)
    batches = DataLoader(range(samples), batch_sampler=OwnBatches(samples, batch))
    own = [len(shard(batches, rank=rank, world=world)) for rank in range(world)]
    assert max(math.ceil(each / size) for each in own) == math.ceil(len(batches) / (world * size))


class OwnBatches(Sampler):
    """A batch sampler of somebody's own."""

    def __init__(self, samples, batch):
        self._samples, self._batch = samples, batch

    def __iter__(self):
        return iter(BatchSampler(range(self._samples), self._batch, drop_last=False))

    def __len__(self):
        return math.ceil(self._samples / self._batch)


def test_what_cannot_be_right_is_refused():
    loader = DataLoader(range(4), 2)
    with pytest.raises(SetupError, match="one of rank and world"):
        shard(loader, rank=1)
    with pytest.raises(SetupError, match="rank is 2, of 2"):
        shard(loader, rank=2, world=2)
    sampler = DistributedSampler(range(4), num_replicas=2, rank=0)
    with pytest.raises(SetupError, match="has a DistributedSampler already"):
        shard(DataLoader(range(4), 2, sampler=sampler), rank=0, world=2)
    with pytest.raises(SetupError, match="already"):
        shard(shard(loader, rank=0, world=2), rank=0, world=2)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(4))


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(range(4), shuffle=True),
        DataLoader(range(4), batch_sampler=[[0, 1], [2, 3]]),
        DataLoader(Stream(), batch_size=1),
        [torch.ones(1)] * 4,
    ],
    ids=["samples", "batches", "stream", "iterable"],
)
def test_a_part_of_the_data_is_not_for_a_process_by_itself(loader):
    model = torch.nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    words = "the loader was dealt out to 2 ranks, and this stepper belongs to one process"
    part = shard(loader, rank=1, world=2)
    with pytest.raises(SetupError, match=words):
        next(iter(stepper.windows(part, size=1)))
    with pytest.raises(SetupError, match=words):
        next(stepper.batches(part))
    # Nothing has begun, and the whole is welcome.
    assert len(list(stepper.batches(shard(loader, rank=0, world=1)))) in (2, 4)


def test_workers_may_read_and_set_what_their_dataset_has():
    stream = Counted(0, 10)
    dealt = instep.distributed.shard(DataLoader(stream, 2), rank=0, world=2).dataset
    assert (dealt.start, dealt.end) == (0, 10)
    dealt.start = 4  # as torch's documentation does in a worker_init_fn
    assert stream.start == 4
    assert list(dealt) == [4, 6, 8]
    with pytest.raises(AttributeError):
        _ = dealt.missing
    assert list(pickle.loads(pickle.dumps(dealt))) == [4, 6, 8]


def test_pipes_are_refused():
    pipe = IterableWrapper(range(7))
    with pytest.raises(SetupError, match="it is a DataPipe"):
        instep.distributed.shard(DataLoader(pipe), rank=0, world=2)


class Counted(IterableDataset):
    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        return iter(range(self.start, self.end))
