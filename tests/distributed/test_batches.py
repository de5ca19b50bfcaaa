"""Function style on several ranks: all make the same updates, whatever their loaders have."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

import instep
from instep.engine.ranks import closing
from instep.errors import InstepError
from tests.distributed.crew import RankError
from tests.distributed.kit import EXACT, dealt, error, spread, told, values
from tests.distributed.test_memory import Allocations
from tests.engine.kit import counted, mean_loss, mlp

UNEVEN = {
    "a short one": [[3, 5, 1], [2, 4], [6]],
    "the first is short": [[4], [3, 5, 1, 2], [2, 2]],
    "an empty one": [[3, 5], [], [4]],
}


def parts(model):
    ends = list(model.parameters())
    return {
        "a": torch.optim.SGD(ends[:2], lr=0.1, momentum=0.9),
        "b": torch.optim.SGD(ends[2:], lr=0.05),
    }


def build(plain, model, how="step", **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if how.startswith("optimizers"):
        optimizer = parts(model)
    return instep.Stepper(model, optimizer, **options)


def one_batch(stepper, model, batch, how):  # noqa: PLR0911 -- a table
    """What the body of a loop does with a batch; the updates that it makes."""
    loss = lambda b: (mean_loss(model, *b), counted(b[1]))
    if how in ("step", "twice"):
        return [stepper.step(batch, loss, split=2) for _ in range(1 + (how == "twice"))]
    if how == "auto":
        return [stepper.step(batch, loss, split=instep.Micro("auto"))]
    if how == "encode":
        over = lambda out, b: (nn.functional.cross_entropy(out, b[1]), len(b[1]))
        return [stepper.step(batch, over, encode=lambda b: model(b[0]), split=2)]
    if how == "gather":
        encode = {"out": lambda b: model(b[0]), "y": lambda b: b[1]}
        over = lambda found, b: nn.functional.cross_entropy(found["out"], found["y"])
        return [stepper.step(batch, over, encode=encode, split=2, gather=True)]
    if how == "gather a sum":
        total = lambda b: {"sum": model(b[0]).sum(0)}
        over = lambda found, b: (found["sum"].square().mean(), 1)
        options = {"encode": total, "combine": "sum", "split": 2, "gather": True}
        return [stepper.step(batch, over, **options)]
    if how == "optimizers":
        return [stepper.step(batch, loss, split=3, optimizer=name) for name in "ab"]
    with stepper.window() as window:
        for x, y in zip(*(part.split(2) for part in batch), strict=True):
            for name in "ab" if how.startswith("optimizers") else [None]:
                window.backward(mean_loss(model, x, y), items=len(y), optimizer=name)
        if how == "optimizers closed by hand":
            window.close("b")
    return list(window.updates)


def train(rank, world, kind, sizes, how, options=None, epochs=2):
    plain = mlp()
    model = spread(plain, kind)
    stepper = build(plain, model, how, **(options or {}))
    updates = []
    for _ in stepper.epochs(epochs):
        for batch in stepper.batches(dealt(sizes)[rank]):
            updates += one_batch(stepper, model, batch, how)
    return values(plain), told(updates), stepper.state_dict()["index"]


def reference(sizes, how, epochs=2):
    """The same loop in one process, over batches that have the samples of all ranks."""
    data = dealt(sizes)
    joined = [
        tuple(torch.cat(part) for part in zip(*(m[i] for m in data if i < len(m)), strict=True))
        for i in range(max(map(len, data)))
    ]
    model = mlp()
    stepper = build(model, model, how)
    updates = []
    for _ in range(epochs):
        for batch in stepper.batches(joined):
            updates += one_batch(stepper, model, batch, how.removeprefix("gather").strip() or how)
    return model, len(updates)


def whole(sizes, how, epochs=2):
    """The reference of a form that asks other ranks: they are not there in one process."""
    data = dealt(sizes)
    model = mlp()
    stepper = build(model, model, how)
    for _ in range(epochs):
        for i in range(max(map(len, data))):
            found = [mine[i] for mine in data if i < len(mine)]
            x, y = (torch.cat(part) for part in zip(*found, strict=True))
            with stepper.window() as window:
                loss = mean_loss(model, x, y)
                if how == "gather a sum":
                    loss = model(x).sum(0).square().mean()
                window.backward(loss, items=1)
    return model


@pytest.mark.parametrize("name", UNEVEN)
@pytest.mark.parametrize("kind", ["ddp", "fsdp", "plain"])
def test_loaders_that_end_earlier(crew, kind, name):
    sizes = UNEVEN[name][: crew.world]
    options = {"group": None} if kind != "plain" else None
    case = train if kind != "plain" else train_plain
    found = crew.run(case, kind, sizes, "step", options)
    expected, count = reference(sizes, "step")
    for numbers, updates, index in found:
        assert error(numbers, expected) < EXACT
        assert index == count
        assert len(updates) <= count
    longest = max(range(crew.world), key=lambda rank: len(sizes[rank]))
    assert len(found[longest][1]) == count


def train_plain(rank, world, kind, sizes, how, options):
    return train(rank, world, kind, sizes, how, {"group": torch.distributed.group.WORLD})


HOWS = [
    "twice",
    "auto",
    "encode",
    "gather",
    "gather a sum",
    "by hand",
    "optimizers",
    "optimizers by hand",
    "optimizers closed by hand",
]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("how", HOWS)
def test_whatever_is_done_with_a_batch(three, kind, how):
    for name in ("a short one", "an empty one"):
        sizes = UNEVEN[name]
        found = three.run(train, kind, sizes, how)
        gathers = how.startswith("gather")
        expected = whole(sizes, how) if gathers else reference(sizes, how)[0]
        for numbers, _, index in found:
            assert error(numbers, expected) < EXACT
            assert index == found[0][2]


@pytest.mark.parametrize("how", ["step", "twice"])
def test_where_every_backward_needs_all_ranks(crew, how):
    sizes = UNEVEN["a short one"][: crew.world]
    found = crew.run(train, "fsdp", sizes, how, {"sync": "micro-batch"})
    expected, _ = reference(sizes, how)
    for numbers, _, _ in found:
        assert error(numbers, expected) < EXACT


def stray(rank, world, kind, how, sizes):
    """Something goes another way on one rank; then all make another loop."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = build(plain, model)
    data, said = dealt(sizes)[rank], ""
    try:
        for index, batch in enumerate(stepper.batches(data)):
            is_now = rank == 0 and index == 1
            if is_now and how == "pass over":
                continue
            one_batch(stepper, model, batch, "twice" if is_now and how == "twice" else "step")
            if is_now and how == "break":
                break
            if is_now and how == "raise":
                raise ZeroDivisionError("a mistake")  # noqa: TRY301 -- here, in the body
            if how == "all break" and index == 1:
                break
            if how == "leave last" and rank == 0 and index == len(data) - 1:
                break
    except (InstepError, ZeroDivisionError) as problem:
        said = str(problem)
    before = values(plain)
    for batch in stepper.batches(data):
        one_batch(stepper, model, batch, "step")
    return said, before, values(plain)


FOUR = [[2, 3, 4, 1], [3, 1, 2, 2], [1, 1, 1, 1]]
LEFT = "rank 0: it left its loop, by a break or an error of its own, near test_batches.py"


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize(
    ("how", "sizes", "words"),
    [
        ("twice", FOUR, "the ranks are not in the same batch of a loop"),
        ("pass over", FOUR, "the ranks are not in the same batch of a loop"),
        ("break", FOUR, LEFT),
        ("raise", FOUR, LEFT),
        # The others have no batch left when it leaves.
        ("break", [[2, 3, 4], [3], [2]], LEFT),
        ("twice", [[2, 3, 4], [3], [2]], ""),
        ("all break", FOUR, ""),
        ("leave last", FOUR, ""),
        ("leave last", [[2, 3, 4], [3], [2]], ""),
        ("leave last", [[2], [3, 4], [2]], LEFT),
    ],
)
def test_a_rank_that_does_something_else(three, kind, how, sizes, words):
    found = three.run(stray, kind, how, sizes)
    for rank, (said, before, after) in enumerate(found):
        if rank == 0 and words == LEFT:
            assert said == ("a mistake" if how == "raise" else "")
        else:
            assert words in said
            assert bool(words) == bool(said)
        assert before == found[0][1]
        assert after == found[0][2]


def in_vain(rank, world, how, path):
    plain = mlp()
    model = spread(plain, "ddp")
    stepper = build(plain, model)
    for batch in stepper.batches(dealt([[2, 3], [4]])[rank]):
        one_batch(stepper, model, batch, "step")
        if how == "save":
            stepper.save(path)
        else:
            for window in stepper.windows([batch], size=1):
                for x, y in window:
                    window.backward(mean_loss(model, x, y), items=len(y))


@pytest.mark.parametrize("how", ["save", "a loop"])
def test_what_needs_the_body_of_every_rank(two, how, tmp_path):
    with pytest.raises(RankError) as caught:
        two.run(in_vain, how, str(tmp_path / "run"))
    what = {"save": f"a checkpoint at {tmp_path}/run", "a loop": "loop 3 in windows of 1"}[how]
    for text in caught.value.errors:
        assert f"rank 0 came for {what}" in text
        assert "and rank 1 cannot: no batch is left there" in text
        assert "the body of its loop does not run" in text


def outside(rank, world):
    """Rank 1 begins no such loop, and makes its steps all the same."""
    plain = mlp()
    model = spread(plain, "ddp")
    stepper = build(plain, model)
    data = dealt([[2, 3], [4, 1]])[rank]
    for batch in data if rank else stepper.batches(data):
        one_batch(stepper, model, batch, "step")


def test_a_rank_outside_of_the_loop_is_told(two):
    with pytest.raises(RankError) as caught:
        two.run(outside)
    assert all("rank 0 in batch 1 of loop 1; rank 1 in none" in e for e in caught.value.errors)


class Stopped(Exception):
    pass


def saved(rank, world, kind, path, options, stops_at=None):
    """A run that saves itself, and ends while rank 1 has no batch left; or goes on."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = build(plain, model)
    seen = []
    try:
        with stepper.autosave(path, signals=(), **options):
            for epoch in stepper.epochs(2):
                for batch in stepper.batches(dealt([[2, 3, 4, 1], [3]])[rank]):
                    seen.append((epoch, len(batch[1])))
                    one_batch(stepper, model, batch, "step")
                    if rank == 0 and len(seen) == stops_at:
                        raise Stopped  # noqa: TRY301 -- here, in the body
    except (Stopped, InstepError):
        # What is still being written.
        stepper._desk.clear()
    return values(plain), seen, stepper.state_dict()["index"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("options", [{"every": 1}, {"every": 2, "wait": False}, {"seconds": 1e-9}])
def test_going_on_where_one_rank_has_no_batch_left(two, kind, options, tmp_path):
    path = str(tmp_path / "run")
    first = two.run(saved, kind, path, options, 4)
    second = two.run(saved, kind, path, options)
    expected, count = reference([[2, 3, 4, 1], [3]], "step")
    sizes = [(epoch, size) for epoch in range(2) for size in (2, 3, 4, 1)]
    kept = {1: 3, 2: 2}.get(options.get("every"), 2)
    for numbers, _, index in second:
        assert error(numbers, expected) < EXACT
        assert index == count
    assert first[0][1] == sizes[:4]
    assert second[0][1] == sizes[kept:]
    # Rank 1 goes on behind its only batch.
    assert [seen for _, seen, _ in (first[1], second[1])] == [[(0, 3)], [(1, 3)]]


def short_of_memory(rank, world, kind, who, at, times):
    """Rank 1 has no batch; one of both runs out of memory at its so many-th operation."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = build(plain, model)
    said = ""
    faults = Allocations(at if rank == who else None, times)
    try:
        for batch in stepper.batches(dealt([[6, 4], []])[rank]):
            with faults if rank == 0 else nullcontext():
                one_batch(stepper, model, batch, "auto")
    except InstepError as problem:
        said = str(problem)
    return said, values(plain), stepper.state_dict()["index"], faults.raised


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_window_that_is_replayed_beside_a_rank_without_a_batch(two, kind):
    expected, _ = reference([[6, 4], []], "step", epochs=1)
    replayed = 0
    for at in range(3, 60, 9):
        (said, numbers, index, raised), other = two.run(short_of_memory, kind, 0, at, 1)
        assert (said, index) == ("", 2)
        assert error(numbers, expected) < EXACT
        assert other[:3] == (said, numbers, index)
        replayed += raised
    assert replayed > 3


def no_memory_to_come_along(rank, world, kind, times):
    """Rank 1 has no batch, and no memory for its part of a close, so many times."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = build(plain, model)
    left = [times if rank == 1 else 0]
    reads = closing.read

    def read(*args):
        if left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("no memory left")
        return reads(*args)

    said = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closing, "read", read)
        try:
            for batch in stepper.batches(dealt([[6, 4], []])[rank]):
                one_batch(stepper, model, batch, "auto")
        except InstepError as problem:
            said = str(problem)
    return said, values(plain), stepper.state_dict()["index"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_rank_that_has_no_memory_to_come_along(two, kind):
    expected, _ = reference([[6, 4], []], "step", epochs=1)
    for said, numbers, index in two.run(no_memory_to_come_along, kind, 1):
        assert (said, index) == ("", 2)
        assert error(numbers, expected) < EXACT
    (first, *_), (second, *_) = two.run(no_memory_to_come_along, kind, 2)
    assert first.startswith("rank 1 gave up")
    assert second.startswith("there is no memory for an update with the batches of other ranks")
