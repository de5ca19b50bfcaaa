"""Streams that are dealt out: ranks that do not draw the same one are told."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import warnings

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import instep
from instep.errors import InstepWarning, WindowError
from tests.distributed.kit import spread, values
from tests.engine.kit import mlp

SAMPLES = 24


class Stream(IterableDataset):
    """Numbers in an order that is drawn in one way or another, and what is made of them."""

    def __init__(self, how, rank, kind="number"):
        self.how, self.rank, self.kind, self.epoch = how, rank, kind, 0

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        order = list(range(first, SAMPLES, step))
        self.epoch += 1
        if self.how == "the system":
            random.Random().shuffle(order)
        if self.how == "torch":
            order = [order[i] for i in torch.randperm(len(order)).tolist()]
        if self.how in ("seeded", "another seed", "late"):
            own = self.rank if self.how == "another seed" else 0
            random.Random(1000 * own + self.epoch).shuffle(order)
        if self.how == "late" and self.rank == 1:
            order[-2:] = order[:-3:-1]
        if self.how == "shorter" and self.rank == 1:
            order.pop()
        return map(self.made, order)

    def made(self, number):
        if self.kind == "number":
            return number
        image = torch.full((2, 2), float(number))
        if "changed" in self.kind:
            image += torch.rand(2, 2) + self.rank
        if self.kind == "drawn":
            return image, number, random.Random().randrange(1000)
        if "constant" in self.kind:
            return image, "train"
        return (image, number % 7) if "label" in self.kind else image


def working(workers):
    """Options of a loader with so many workers, in a rank of a crew.

    Ranks have threads (gloo's, autograd's), and a copy of a process in the middle of what a thread
    does may wait for it for ever: workers are copies of a server that has none. A worker that hangs
    all the same is an error, and not a test that hangs.
    """
    if not workers:
        return {"num_workers": 0}
    # Ranks end with the tests, and their loaders' workers with each case.
    multiprocessing.current_process()._config["daemon"] = False
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.distributed.test_streams"])
    return {"num_workers": workers, "multiprocessing_context": context, "timeout": 30.0}


def train(rank, world, how, kind, workers, style, epochs=2):
    plain = mlp()
    model = spread(plain, "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.01))
    # As many programs do: other dropout on each rank.
    torch.manual_seed(100 + rank)
    stream = Stream(how, rank, kind)
    loader = DataLoader(stream, 2, **working(rank if workers == "other" else workers))
    loader = instep.distributed.shard(stream if style == "iterable" else loader)
    start, said, seen = values(plain), [], []

    def loss(batch):
        return model(torch.ones(1, 5).double()).mean() * 0.1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(epochs):
            seen.append([])
            try:
                if style == "function":
                    for batch in stepper.batches(loader):
                        seen[-1] += batch.tolist()
                        stepper.step(batch, loss)
                    continue
                for window in stepper.windows(loader, size=2):
                    for batch in window:
                        number = batch if kind == "number" else 0
                        seen[-1] += torch.as_tensor(number).reshape(-1).tolist()
                        window.backward(loss(batch), items=1)
            except WindowError as error:
                said.append(str(error))
                break
    warned = [str(w.message) for w in caught if w.category is InstepWarning]
    return said, warned, values(plain) == start, seen


@pytest.mark.parametrize("style", ["windows", "iterable", "function"])
@pytest.mark.parametrize("how", ["the system", "torch", "another seed"])
def test_another_order_is_said_at_once_and_an_error_at_the_end(two, how, style):
    found = two.run(train, how, "number", 0, style)
    for said, warned, _, seen in found:
        assert len(warned) == 1
        assert "have different samples at the same places of a stream" in warned[0]
        words = "rank 1 and rank 0 do not draw the same stream from shard(): the same samples came"
        assert said[0].startswith(words)
        assert "same number on every rank" in said[0]
        assert len(seen) == 1


@pytest.mark.parametrize("how", ["the system", "torch"])
def test_another_order_in_workers(two, how):
    for said, warned, _, _ in two.run(train, how, "number", 2, "windows"):
        assert len(warned) == 1
        assert said[0].startswith("rank 1 and rank 0 do not draw the same stream from shard()")


def test_names_that_are_drawn_at_random_are_no_error(two):
    for said, warned, _, _ in two.run(train, "seeded", "drawn", 0, "windows"):
        assert said == []
        assert len(warned) == 1


def test_a_name_that_all_samples_have_says_nothing(two):
    for _, warned, _, _ in two.run(train, "torch", "changed constant", 0, "windows"):
        assert len(warned) == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["number", "label", "changed label"])
def test_the_same_order_is_left_alone(crew, kind, workers):
    found = crew.run(train, "seeded", kind, workers, "windows", 3)
    assert all(said == [] and warned == [] for said, warned, _, _ in found)
    if kind == "number":
        for epoch in range(3):
            seen = [number for _, _, _, each in found for number in each[epoch]]
            assert sorted(seen) == list(range(SAMPLES))


@pytest.mark.parametrize("style", ["iterable", "function"])
def test_the_same_order_in_other_styles(two, style):
    found = two.run(train, "seeded", "number", 0, style, 3)
    for epoch in range(3):
        assert sorted(found[0][3][epoch] + found[1][3][epoch]) == list(range(SAMPLES))
    assert all(said == [] and warned == [] for said, warned, _, _ in found)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("late", "the same samples came in another order."),
        ("shorter", "they had 23 and 24 samples at the end."),
    ],
)
@pytest.mark.parametrize("style", ["windows", "function"])
def test_what_differs_late_is_found_at_the_end(two, how, words, style):
    # In function style a loop ends after its last close, and the next one tells.
    for said, _, _, _ in two.run(train, how, "number", 0, style):
        assert words in said[0]


def test_images_alone_in_another_order_are_found_at_the_end_of_the_epoch(two):
    for said, warned, _, _ in two.run(train, "torch", "image", 0, "windows"):
        assert "the same samples came in another order." in said[0]
        assert "have different samples at the same places of a stream" in warned[0]


def test_images_alone_that_are_changed_on_the_way_are_said_once(two):
    for said, warned, _, _ in two.run(train, "seeded", "changed", 0, "windows"):
        assert said == []
        assert len(warned) == 1
        assert "changed at random on the way, which is fine" in warned[0]


def train_in_parts(rank, world):
    """Ranks 0 and 1 deal out one stream, and rank 2 has another one, of a machine of its own."""
    model = spread(mlp(), "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.01))
    stream = Stream("another seed", rank // 2)
    loader = instep.distributed.shard(DataLoader(stream, 2), rank=rank % 2, world=2)
    for window in stepper.windows(loader, size=2):
        for _ in window:
            window.backward(model(torch.ones(1, 5).double()).mean(), items=1)
    return window.index


def test_streams_of_a_part_of_the_ranks_are_their_own(three):
    assert three.run(train_in_parts) == [2, 2, 2]


def test_loaders_with_other_numbers_of_workers(two):
    for said, _, is_as_it_was, _ in two.run(train, "seeded", "number", "other", "windows"):
        assert "their loaders have 0 and 1 workers." in said[0]
        assert is_as_it_was


def leave_and_resume(rank, world, path, workers):
    """Epochs that are left early, with workers that stay, and one that is gone on with."""

    def build():
        plain = mlp()
        model = spread(plain, "ddp")
        loader = DataLoader(
            Stream("seeded", rank),
            1,
            persistent_workers=workers > 0,
            **working(workers),
        )
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.01))
        return model, stepper, instep.distributed.shard(loader)

    model, stepper, loader = build()
    for epoch in stepper.epochs(4):
        for window in stepper.windows(loader, size=2):
            for _ in window:
                window.backward(model(torch.ones(1, 5).double()).mean(), items=1)
            if epoch == 3:
                stepper.save(path)
            if window.index % 2:
                # Who looks into the loader besides does not count.
                next(iter(instep.distributed.shard(Stream("seeded", rank))))
                break
    model, stepper, loader = build()
    stepper.load(path)
    seen = []
    for window in stepper.windows(loader, size=2):
        for batch in window:
            seen += batch.tolist()
            window.backward(model(torch.ones(1, 5).double()).mean(), items=1)
    return seen


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_that_are_left_and_gone_on_with_are_no_difference(two, tmp_path, workers):
    found = two.run(leave_and_resume, str(tmp_path / "run"), workers)
    assert len(found[0] + found[1]) == SAMPLES - 8
    assert len({*found[0], *found[1]}) == SAMPLES - 8


class Bar:
    """A progress bar: what the loader has is not what it has."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        yield from self.loader


def wrapped(loader, how, rank):
    """Put something around a loader, anew in each epoch."""
    if how == "enumerate":
        return (batch for _, batch in enumerate(loader))
    if how == "zip":
        return (batch for batch, _ in zip(loader, itertools.count(), strict=False))
    if how == "islice":
        return itertools.islice(loader, 1000)
    if how == "a bar":
        return Bar(loader)
    if how == "round and round":
        return itertools.chain(loader, loader)
    return Bar(loader) if rank == 0 else loader  # "a bar on rank 0"


def train_wrapped(rank, world, how, order, workers, style):
    plain = mlp()
    model = spread(plain, "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.01))
    torch.manual_seed(100 + rank)
    options = working(workers)
    if order in ("same generators", "other generators"):
        seed = rank if order == "other generators" else 0
        own = torch.Generator().manual_seed(seed)
        loader = DataLoader(range(SAMPLES), 2, shuffle=True, generator=own, **options)
    else:
        loader = DataLoader(Stream(order, rank), 2, **options)
    loader = instep.distributed.shard(loader)
    said, seen = [], []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for _ in range(2):
                seen.append([])
                for batch in drawn_by(stepper, wrapped(loader, how, rank), style, model):
                    seen[-1] += batch.tolist()
        except WindowError as error:
            said.append(str(error))
    return said, [str(w.message) for w in caught if w.category is InstepWarning], seen


def drawn_by(stepper, loader, style, model):
    def loss(batch):
        return model(torch.ones(1, 5).double()).mean() * 0.1

    if style == "function":
        for batch in stepper.batches(loader):
            stepper.step(batch, loss)
            yield batch
        return
    for window in stepper.windows(loader, size=2):
        for batch in window:
            window.backward(loss(batch), items=1)
            yield batch


WRAPPERS = ["enumerate", "zip", "islice", "a bar", "a bar on rank 0", "round and round"]


@pytest.mark.parametrize("style", ["windows", "function"])
@pytest.mark.parametrize("how", WRAPPERS)
def test_another_order_inside_of_something(two, how, style):
    for said, warned, seen in two.run(train_wrapped, how, "torch", 0, style):
        assert len(warned) == 1
        assert said[0].startswith("rank 1 and rank 0 do not draw the same stream from shard()")
        assert len(seen) == 1
    for said, _, seen in two.run(train_wrapped, how, "other generators", 0, style):
        assert said[0].startswith("rank 1 and rank 0 draw different orders from shard().")
        assert seen == [[]]


@pytest.mark.parametrize("how", ["zip", "a bar"])
def test_another_order_inside_of_something_in_workers(two, how):
    for said, _, _ in two.run(train_wrapped, how, "torch", 2, "windows"):
        assert said[0].startswith("rank 1 and rank 0 do not draw the same stream from shard()")
    for said, _, _ in two.run(train_wrapped, how, "other generators", 1, "windows"):
        assert said[0].startswith("rank 1 and rank 0 draw different orders from shard().")


@pytest.mark.parametrize("order", ["seeded", "same generators"])
@pytest.mark.parametrize("style", ["windows", "function"])
@pytest.mark.parametrize("how", WRAPPERS)
def test_the_same_order_inside_of_something(two, how, order, style):
    found = two.run(train_wrapped, how, order, 0, style)
    assert all(said == [] and warned == [] for said, warned, _ in found)
    times = 2 if how == "round and round" else 1
    for epoch in range(2):
        assert sorted(found[0][2][epoch] + found[1][2][epoch]) == sorted([*range(SAMPLES)] * times)


def train_on_several(rank, world, how):
    """Loops over several loaders that are dealt out, and others on the side."""
    model = spread(mlp(), "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.01))
    if "another one on rank 1" in how and rank:
        list(instep.distributed.shard(Stream("seeded", 0)))
    many, few, valid = (
        instep.distributed.shard(DataLoader(Stream(kind, rank), size))
        for kind, size in (("seeded", 2), ("sorted", 4), ("another seed", 3))
    )
    loaders = [many, few]
    if how.startswith("another order"):
        loaders[1] = valid
    if how == "an early end on rank 1" and rank:
        loaders.insert(0, [])
    if how == "chosen at random":
        random.Random(rank).shuffle(loaders)
        assert world == 2
    heard = ""
    try:
        for _ in range(2):
            for window in stepper.windows(zip(*loaders, strict=False), size=2):
                for _ in window:
                    window.backward(model(torch.ones(1, 5).double()).mean(), items=1)
                # A validation is no part of the loop, and may be different on each rank.
                next(iter(valid))
    except WindowError as error:
        heard = str(error)
    return heard


@pytest.mark.filterwarnings("ignore::instep.errors.InstepWarning")
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("as usual", ""),
        ("an early end on rank 1", ""),
        ("chosen at random", ""),
        ("another one on rank 1", ""),
        ("another order, another one on rank 1", "rank 1 and rank 0 do not draw the same stream"),
        ("another order in the second", "rank 1 and rank 0 do not draw the same stream"),
    ],
)
def test_several_loaders_in_one_loop(two, how, words):
    for heard in two.run(train_on_several, how):
        assert heard.startswith(words)
        assert bool(heard) == bool(words)
