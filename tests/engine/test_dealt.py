"""Whatever is around a loader that was dealt out: the loop that draws from it hears of it."""

from __future__ import annotations

import gc
import itertools
import multiprocessing

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import instep
from instep.distributed import shard
from instep.engine import dealt
from instep.engine.dealt import Listener, Pass, dealer_of
from instep.engine.feed import Feed
from instep.errors import InstepWarning, SetupError, StateError, WindowError


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(8))


class Around:
    """A class of a user's."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        yield from self.loader


class Bar(Around):
    """As progress bars are: what the loader has is not what it has."""

    def __iter__(self):
        return iter([*self.loader])


WRAPPERS = {
    "itself": lambda loader: loader,
    "a class": Around,
    "a list, drawn at once": Bar,
    "a generator": lambda loader: (batch for batch in loader),
    "zip": lambda loader: zip(loader, itertools.count(), strict=False),
    "enumerate": enumerate,
    "islice": lambda loader: itertools.islice(loader, 3),
    "map": lambda loader: map(str, loader),
    "an iterator": iter,
    "chain": lambda loader: itertools.chain([0], loader),
}
LOADERS = {
    "samples": lambda: DataLoader(range(8), 2, shuffle=True),
    "batches": lambda: DataLoader(range(8), batch_sampler=[[0, 1], [2], [3]]),
    "stream": lambda: DataLoader(Stream(), 2),
    "stream in workers": lambda: DataLoader(
        Stream(), 2, num_workers=1, multiprocessing_context="forkserver"
    ),
    "iterable": lambda: list(range(8)),
}


def heard_of(make, *, draws=3):
    heard = []
    feed = Feed(make(), listener=Listener(2, heard.append))
    for _ in range(draws):
        feed.take()
    return heard


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_loop_hears_of_what_it_draws_from(wrapper, loader):
    if loader == "stream in workers" and wrapper not in ("itself", "zip", "a class"):
        pytest.skip("workers take their time to start")
    (told,) = heard_of(lambda: WRAPPERS[wrapper](shard(LOADERS[loader](), rank=1, world=2)))
    assert told.dealt_to == 2
    assert (told.serial == 0) == (wrapper == "itself")
    assert bool(told.deal) == (loader in ("samples", "batches"))
    if told.passed is not None:
        assert told.epoch == told.passed.epoch > 0
        assert told.passed.seen(told.epoch)[0]


def test_each_of_several_is_heard_of():
    one, other = (shard(LOADERS["samples"](), rank=0, world=2) for _ in range(2))
    told = heard_of(lambda: zip(one, other, strict=True))
    assert [each.serial for each in told] == [one.sampler.serial, other.sampler.serial]
    told = heard_of(lambda: itertools.chain(one, one), draws=4)
    assert len(told) == 2
    assert told[0].deal != told[1].deal


def test_what_is_drawn_besides_is_not():
    train, valid = (shard(LOADERS["stream"](), rank=0, world=2) for _ in range(2))
    heard = []
    begun = iter(valid)
    feed = Feed(Around(train), listener=Listener(2, heard.append))
    next(begun)
    feed.take()
    list(valid)
    # To look into the loader of the loop does not end what is looked at.
    next(iter(train))
    while feed.take() is not None and not feed._is_over:
        pass
    (told,) = heard
    assert told.serial == train.dataset.serial
    assert told.passed.seen(told.epoch)[1].items == 8


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_part_of_the_data_in_a_wrapper_is_not_for_a_process_by_itself(wrapper):
    model = torch.nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def part():
        return WRAPPERS[wrapper](shard(LOADERS["samples"](), rank=1, world=2))

    with pytest.raises(SetupError, match="dealt out to 2 ranks"):
        for window in stepper.windows(part(), size=4):
            list(window)
    with pytest.raises(SetupError, match="dealt out to 2 ranks"):
        list(stepper.batches(part()))


def test_a_loader_made_of_one_that_was_dealt_out():
    """As other libraries do, which put a DataLoader together anew."""
    dealt = shard(LOADERS["stream"](), rank=0, world=2)
    again = DataLoader(dealt.dataset, 2)
    (told,) = heard_of(lambda: again)
    assert told.passed.seen(told.epoch)[0]


def test_a_pass_is_like_the_iterator_that_it_is_made_of():
    loader = shard(DataLoader(range(8), 2), rank=0, world=2)
    begun = iter(loader)
    assert isinstance(begun, Pass)
    assert len(begun) == len(loader) == 2
    assert begun._num_yielded == 0
    next(begun)
    assert begun._num_yielded == 1
    with pytest.raises(AttributeError):
        _ = begun.missing
    assert dealer_of(loader) is loader.sampler


def test_who_hears_keeps_no_workers():
    before = multiprocessing.active_children()
    heard = heard_of(
        lambda: Around(shard(LOADERS["stream in workers"](), rank=0, world=2)), draws=1
    )
    gc.collect()
    assert heard
    assert multiprocessing.active_children() == before


class Failing(IterableDataset):
    """A stream that raises in the middle, in a way that a worker cannot tell."""

    def __iter__(self):
        class LocalError(Exception):
            pass

        for number in range(8):
            if number == 5:
                raise LocalError
            yield number


@pytest.mark.parametrize("wrapper", ["itself", "zip", "a class"])
def test_a_stream_whose_error_was_lost_has_not_ended(wrapper):
    loader = DataLoader(Failing(), 1, num_workers=1, multiprocessing_context="fork", timeout=60)
    # As torch has it: nobody hears of the error.
    assert len(list(loader)) == 5
    dealt = WRAPPERS[wrapper](shard(loader, rank=0, world=2))
    with pytest.raises(WindowError, match="a loader of a stream ended, and its stream did not"):
        list(dealt)


def test_a_look_besides_may_come_to_its_end():
    train = shard(LOADERS["stream"](), rank=0, world=2)
    feed = Feed(train, listener=Listener(2, lambda told: None))
    feed.take()
    assert len(list(train)) == 2
    again = DataLoader(train.dataset, 2)  # nor one that somebody has made anew, of fewer workers
    assert len(list(again)) == 2


class Patchy:
    """Items of which one cannot be read."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at == 3:
            raise FileNotFoundError
        if self.at > 6:
            raise StopIteration
        return self.at


def test_an_item_that_cannot_be_read_does_not_end_a_stream():
    begun = iter(shard(Patchy(), rank=1, world=2))
    assert next(begun) == 2
    with pytest.raises(FileNotFoundError):
        next(begun)
    assert list(begun) == [5]


def run_through(around, *, tell=False, stop=None, state=None):
    """Three epochs of a shuffled loader inside of something; stop after so many batches."""
    model = torch.nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loader = shard(DataLoader(range(8), 2, shuffle=True))
    if state is not None:
        stepper.load_state_dict(state)
    seen = []
    for epoch in stepper.epochs(3):
        if tell:
            loader.sampler.set_epoch(epoch)
        for batch in stepper.batches(around(loader)):
            seen.append(str(batch))
            if len(seen) == stop:
                return seen, stepper.state_dict()
        if len(seen) == -(stop or 0):
            return seen, stepper.state_dict()
    return seen, None


@pytest.mark.parametrize("stop", [6, -4, 1])
@pytest.mark.parametrize("around", ["itself", "a class", "a list, drawn at once"])
@pytest.mark.parametrize("tell", [False, True])
def test_a_loop_over_something_goes_on_in_its_order(around, stop, tell):
    whole, _ = run_through(WRAPPERS[around], tell=tell)
    assert len({*whole[:4]} & {*whole[4:8]}) < 4
    begun, state = run_through(WRAPPERS[around], tell=tell, stop=stop)
    rest, _ = run_through(WRAPPERS[around], tell=tell, state=state)
    # A batch that was handed out, and not worked on, comes again.
    done = len(begun) if stop < 0 else len(begun) - 1
    assert begun[:done] + rest == whole


def run_anew(around, *, is_anew=True, stop=None, state=None):
    """Four epochs of a loader that is dealt out anew in each of them, as a new process has them."""
    dealt._made.clear()
    model = torch.nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loader = DataLoader(range(8), 2, shuffle=True)
    once = shard(loader)
    if state is not None:
        stepper.load_state_dict(state)
    seen = []
    for _ in stepper.epochs(4):
        for batch in stepper.batches(around(shard(loader) if is_anew else once)):
            seen.append(str(batch))
            if len(seen) == stop:
                return seen, stepper.state_dict()
        if len(seen) == -(stop or 0):
            return seen, stepper.state_dict()
    return seen, None


@pytest.mark.parametrize("around", ["itself", "a class", "a list, drawn at once"])
@pytest.mark.parametrize("is_anew", [True, False], ids=["anew", "once"])
def test_a_loader_that_is_dealt_out_anew_goes_on_in_its_order(around, is_anew):
    whole, _ = run_anew(WRAPPERS[around], is_anew=is_anew)
    epochs = [tuple(whole[start : start + 4]) for start in range(0, 16, 4)]
    assert len({*epochs}) == 4
    for stop in (1, 3, -4, 5, 6, 8, -8, 9, 11, -12, 14):
        begun, state = run_anew(WRAPPERS[around], is_anew=is_anew, stop=stop)
        done = len(begun) if stop < 0 else len(begun) - 1
        rest, _ = run_anew(WRAPPERS[around], is_anew=is_anew, state=state)
        assert begun[:done] + rest == whole, stop
        # Interrupted once more.
        more, state = run_anew(WRAPPERS[around], is_anew=is_anew, stop=2, state=state)
        rest, _ = run_anew(WRAPPERS[around], is_anew=is_anew, state=state)
        assert begun[:done] + more[:1] + rest == whole, stop


BEFORE = ["zip", "enumerate", "an iterator", "a generator"]


@pytest.mark.parametrize("around", BEFORE)
def test_what_began_before_the_loop_is_in_its_order_or_refused(around):
    _, state = run_through(WRAPPERS[around], stop=6)
    with pytest.raises(StateError, match="began in another order than the one that was saved"):
        run_through(WRAPPERS[around], state=state)


@pytest.mark.parametrize("around", BEFORE)
def test_a_whole_epoch_in_another_order_is_said(around):
    _, state = run_through(WRAPPERS[around], stop=-4)
    with pytest.warns(InstepWarning, match="began in another order than the one that was saved"):
        rest, _ = run_through(WRAPPERS[around], state=state)
    assert len(rest) == 8


@pytest.mark.parametrize("stop", [6, -4])
@pytest.mark.parametrize("around", BEFORE)
def test_an_epoch_that_is_told_is_in_its_order(around, stop):
    whole, _ = run_through(WRAPPERS[around], tell=True)
    begun, state = run_through(WRAPPERS[around], tell=True, stop=stop)
    rest, _ = run_through(WRAPPERS[around], tell=True, state=state)
    assert len(rest) == 12 - len(begun) + (stop > 0)
    if around in ("an iterator", "a generator"):  # the others count batches anew
        assert begun[: len(begun) - (stop > 0)] + rest == whole


class Chained:
    """Several loaders, one behind the other, or side by side."""

    def __init__(self, *loaders, abreast=False):
        self.loaders, self.abreast = loaders, abreast

    def __iter__(self):
        yield from zip(*self.loaders, strict=True) if self.abreast else chained(self.loaders)


def chained(loaders):
    for loader in loaders:
        yield from loader


SEVERAL = {
    "one twice": lambda a, b, epoch: Chained(a, a),
    "two": lambda a, b, epoch: Chained(a, b),
    "two, twice": lambda a, b, epoch: Chained(a, b, a, b),
    "side by side": lambda a, b, epoch: Chained(a, b, abreast=True),
    "in other orders": lambda a, b, epoch: Chained(*([a, b, a, b] if epoch % 2 else [b, b, a, a])),
    "one after the first epoch": lambda a, b, epoch: Chained(a, b) if epoch < 1 else Chained(b),
    "one by itself": lambda a, b, epoch: a if epoch % 2 else Chained(b, a),
    "by turns": lambda a, b, epoch: (a, b, a, b)[epoch],
}


def run_several(how, *, shared, stop=None, state=None):
    """Four epochs of two shuffled loaders, as a program that begins anew has them."""
    dealt._made.clear()
    model = torch.nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    generator = torch.Generator().manual_seed(3) if shared else None
    one, other = (
        shard(DataLoader(range(8), 4, shuffle=True, generator=generator)) for _ in range(2)
    )
    if state is not None:
        stepper.load_state_dict(state)
    seen, count = [], 0
    for epoch in stepper.epochs(4):
        for batch in stepper.batches(SEVERAL[how](one, other, epoch)):
            seen.append((epoch, str(batch)))
            count += 1
            if count == stop:
                return seen[:-1], stepper.state_dict()
        count += 1
        if count == stop:
            return seen, stepper.state_dict()
    return seen, None


@pytest.mark.parametrize("shared", [False, True], ids=["own orders", "one generator"])
@pytest.mark.parametrize("how", SEVERAL)
def test_each_of_several_goes_on_in_its_order(how, shared):
    whole, _ = run_several(how, shared=shared)
    # Not in the first epoch of a loader: what never began is not told from one that did.
    first = next(n for n, (epoch, _) in enumerate(whole) if epoch == 1 + (how == "by turns"))
    for stop in range(first + 1 + (how == "by turns"), len(whole) + 4):
        begun, state = run_several(how, shared=shared, stop=stop)
        assert begun + run_several(how, shared=shared, state=state)[0] == whole, stop
    # Twice, with a loader that did not begin in between.
    begun, state = run_several(how, shared=shared, stop=first + 4)
    more, state = run_several(how, shared=shared, stop=2, state=state)
    assert begun + more + run_several(how, shared=shared, state=state)[0] == whole


def test_a_program_that_makes_its_loaders_anew_keeps_a_few():
    known = dealt.Known()
    for serial in range(1, 100):
        known.begin(serial, {"sampler": torch.Generator()})
    assert len(known.states()) == dealt.LOADERS
