"""A rank that fails: all know, nobody waits, and who it was is said."""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
from torch import distributed
from torch.distributed import distributed_c10d
from torch.utils.data import DataLoader

import instep
from instep.engine.ranks import exchange, rollcall
from instep.errors import InstepError
from tests.distributed.crew import RankError
from tests.distributed.kit import dealt, spread, told, values
from tests.engine.kit import mean_loss, mlp

SIZES = [[3, 4, 1, 2], [2, 3, 5, 1], [1, 1, 1, 1]]


def build(kind, **options):
    plain = mlp()
    model = spread(plain, kind)
    return (
        plain,
        model,
        instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), **options),
    )


def stumble(how):
    if how in ("body", "with"):
        raise ZeroDivisionError(f"a mistake in {how}")


class Broken:
    """A loader that raises, here or there."""

    def __init__(self, data, how):
        self.data, self.how = data, how

    def __iter__(self):
        if self.how == "iter":
            raise OSError("no such disk\nat all")
        return self.batches()

    def batches(self):
        for index, batch in enumerate(self.data):
            if index == {"first draw": 0, "loader": 1, "ahead": 2}.get(self.how):
                raise OSError("no such disk\nat all")
            yield batch


def fail_once(rank, world, kind, how, sync="window"):
    """Rank 1 fails in its first window, and everybody goes on with a second loop."""
    plain, model, stepper = build(kind, sync=sync)
    data = dealt(SIZES)[rank]
    text = ""
    is_wrong = rank == 1
    try:
        windows = stepper.windows(Broken(data, how) if is_wrong else data, size=2)
        with windows if how == "with" else nullcontext():
            for window in windows:
                for index, (x, y) in enumerate(window):
                    is_now = is_wrong and index == 1
                    stumble(how if is_now else "")
                    items = -1 if is_now and how == "count" else len(y)
                    window.backward(mean_loss(model, x, y), items=items)
                stumble("body" if is_wrong and how == "outer" else "")
                if is_wrong and how == "break":
                    break
    except (InstepError, ZeroDivisionError, OSError) as error:
        text = f"{type(error).__name__}: {error}"
    before = values(plain)
    updates = []
    for window in stepper.windows(data, size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
        updates += window.updates
    return text, before, told(updates), values(plain)


FAILURES = {
    "iter": "rank 1: OSError: no such disk. A window",
    "ahead": "rank 1: OSError: no such disk. A window",
    "loader": "rank 1: OSError: no such disk. A window",
    "first draw": "rank 1: OSError: no such disk. A window",
    "body": "it left a window, by a break or an error, near test_failures.py:",
    "count": "it left a window, by a break or an error",
    "outer": "it left its loop, by a break or an error of its own",
    "break": "it left its loop, by a break or an error of its own",
    "with": "ZeroDivisionError: a mistake in with",
}


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("how", FAILURES)
def test_all_ranks_raise_and_can_go_on(three, kind, how):
    found = three.run(fail_once, kind, how)
    for rank, (text, before, updates, after) in enumerate(found):
        if rank == 1:
            assert "gave up" not in text
        else:
            assert text.startswith("WindowError: rank 1 gave up")
            assert FAILURES[how] in text
        # The window was thrown away everywhere, and training goes on with the same weights.
        assert before == found[0][1]
        assert len(updates) == 2
        assert after == found[0][3]
        assert updates == found[0][2]


def hook_that_raises(rank, world, is_wrong):
    """A hook on a sharded parameter of the first layer, which is added up after the others."""
    plain, model, stepper = build("fsdp")
    data, calls, said = dealt(SIZES)[rank], [], []
    first, *_, last = model.parameters()

    def hook(parameter):
        calls.append(parameter is first)
        if is_wrong and len(calls) == 3 and rank == 1:
            raise OSError("no such disk")

    first.register_post_accumulate_grad_hook(hook)
    last.register_post_accumulate_grad_hook(hook)
    found = []
    for turn in range(3):
        try:
            with stepper.window() as window:
                x, y = data[turn]
                window.backward(mean_loss(model, x, y), items=len(y))
        except (InstepError, OSError) as error:
            said.append(f"{turn} {type(error).__name__}: {error}")
        found.append(values(model))
    return said, calls, found


def test_a_hook_on_a_sharded_parameter_that_raises_is_told(two):
    usual, other = two.run(hook_that_raises, False)
    # Each once in a window, in the order in which FSDP has them.
    assert usual == other == ([], [True, False] * 3, usual[2])
    first, second = two.run(hook_that_raises, True)
    assert second[0] == ["1 OSError: no such disk"]
    words = "1 WindowError: a hook on a sharded parameter raised an error on rank 1."
    assert len(first[0]) == 1
    assert first[0][0].startswith(words)
    assert "rank 1: OSError: no such disk. The gradients" in first[0][0]
    assert first[2] == second[2]
    # Nothing was updated in that window, and the one after it is as usual.
    assert first[2][0] == usual[2][0] == first[2][1]
    assert first[2][2] != first[2][1]


@pytest.mark.parametrize("how", ["iter", "first draw", "loader", "ahead"])
def test_a_loader_that_fails_where_every_backward_needs_all_ranks(two, how):
    start = time.monotonic()
    found = two.run(fail_once, "fsdp", how, "micro-batch")
    assert found[1][0] == "OSError: no such disk\nat all"
    assert found[0][0].startswith("WindowError: rank 1 gave up")
    assert FAILURES[how] in found[0][0]
    assert found[0][1:] == found[1][1:]
    assert time.monotonic() - start < 30


def fail_again(rank, world, how):
    """Whatever went wrong in a loop before, a loader that fails in the next one is told of."""
    plain, model, stepper = build("ddp")
    data = dealt(SIZES)[rank]
    said = []
    for turn in range(3):
        is_wrong = rank == 1 and turn < 2
        try:
            for window in stepper.windows(Broken(data, how) if is_wrong else data, size=2):
                for x, y in window:
                    window.backward(mean_loss(model, x, y), items=len(y))
                    if how == "ahead" and turn == 1:
                        window.discard()
                        break
        except (InstepError, OSError) as error:
            said.append(str(error).splitlines()[0])
    return said, values(plain)


@pytest.mark.parametrize("how", ["iter", "first draw", "loader", "ahead"])
def test_a_loader_that_fails_again(two, how):
    found = two.run(fail_again, how)
    assert found[0][1] == found[1][1]
    assert found[1][0] == ["no such disk"] * 2
    assert all(said.startswith("rank 1 gave up") for said in found[0][0])
    assert len(found[0][0]) == 2


class Leaving(Broken):
    """A loader that ends its process, or is interrupted, here or there."""

    def __iter__(self):
        error = {"exit": SystemExit(3), "interrupt": KeyboardInterrupt()}[self.how[0]]
        for index, batch in enumerate(self.data):
            if index == self.how[1]:
                raise error
            yield batch


def leave_in_loader(rank, world, how, at, style):
    plain, model, stepper = build("ddp")
    data = dealt(SIZES)[rank]
    loader = Leaving(data, (how, at)) if rank == 1 else data
    loss = lambda batch: (mean_loss(model, *batch), len(batch[1]))
    try:
        if style == "batches":
            for batch in stepper.batches(loader):
                stepper.step(batch, loss)
        else:
            for window in stepper.windows(loader, size=2):
                for x, y in window:
                    window.backward(mean_loss(model, x, y), items=len(y))
    except BaseException as error:  # noqa: BLE001 -- what it is matters here
        return type(error).__name__, str(error), values(plain)


@pytest.mark.parametrize("style", ["windows", "batches"])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(("how", "said"), [("exit", "SystemExit: 3"), ("interrupt", "KeyboardInt")])
def test_a_loader_that_ends_its_process_is_told_of_by_its_name(two, how, said, at, style):
    (kind, text, weights), (mine, _, others) = two.run(leave_in_loader, how, at, style)
    assert mine == {"exit": "SystemExit", "interrupt": "KeyboardInterrupt"}[how]
    assert kind == "WindowError"
    assert text.startswith("rank 1 gave up")
    assert f"rank 1: {said}" in text
    assert weights == others


def samples_one_by_one(rank, world, path):
    """A loader without a batch size, which is left and gone on with."""
    make = lambda: instep.distributed.shard(
        DataLoader(torch.arange(9), batch_size=None, shuffle=True)
    )
    plain, model, stepper = build("ddp")
    seen = []
    for window in stepper.windows(make(), size=2):
        for sample in window:
            seen.append(sample.item())
            window.backward(model(torch.ones(1, 5).double()).mean(), items=1)
        stepper.save(path)
        break
    plain, model, stepper = build("ddp")
    stepper.load(path)
    for window in stepper.windows(make(), size=2):
        for sample in window:
            seen.append(sample.item())
            window.backward(model(torch.ones(1, 5).double()).mean(), items=1)
    return seen


def test_loaders_without_a_batch_size(two, tmp_path):
    first, second = two.run(samples_one_by_one, str(tmp_path / "run"))
    assert sorted(first + second) == list(range(9))


def fail_in_batches(rank, world, how):
    """A loop in function style, of which the loader fails on one rank."""
    plain, model, stepper = build("ddp")
    data = dealt(SIZES)[rank]
    said = ""
    try:
        for x, y in stepper.batches(Broken(data, how if rank == 1 else "")):
            stepper.step((x, y), lambda b: (mean_loss(model, *b), len(b[1])), split=2)
    except (InstepError, OSError) as error:
        said = str(error)
    before = values(plain)
    for x, y in stepper.batches(data):
        stepper.step((x, y), lambda b: (mean_loss(model, *b), len(b[1])), split=2)
    return said, before, values(plain)


@pytest.mark.parametrize("how", ["iter", "first draw", "loader"])
def test_a_loader_that_fails_in_function_style(two, how):
    start = time.monotonic()
    found = two.run(fail_in_batches, how)
    assert found[1][0].startswith("no such disk")
    assert found[0][0].startswith("rank 1 gave up")
    assert "rank 1: OSError: no such disk" in found[0][0]
    assert found[0][1:] == found[1][1:]
    assert time.monotonic() - start < 30


def everybody_discards(rank, world, kind):
    plain, model, stepper = build(kind)
    start = values(plain)
    skipped = 0
    for window in stepper.windows(dealt([[3, 4, 1], [2]])[rank], size=1):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
            if window.index == 0:
                window.discard()
                break
        skipped += not window.is_closed
    return start == values(plain), skipped, window.index


def one_discards(rank, world):
    rollcall.ROLL_CALL = 1.0
    plain, model, stepper = build("ddp")
    for window in stepper.windows(dealt(SIZES)[rank], size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
            if rank == 1:
                window.discard()
                break


def test_a_window_that_one_rank_discards(two):
    with pytest.raises(RankError) as caught:
        two.run(one_discards, timeout=2.0)
    assert caught.value.errors[0].startswith("rank 1 gave up")
    assert "rank 1: discarded" in caught.value.errors[0]
    assert caught.value.errors[1].startswith("rank 0 did not come to the start of a loop")


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_window_that_all_ranks_discard(two, kind):
    assert two.run(everybody_discards, kind) == [(False, 1, 2), (False, 1, 2)]


def other_model(rank, world):
    model = mlp(outputs=3 + rank)
    group = torch.distributed.group.WORLD
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), group=group)
    with stepper.window() as window:
        window.backward(model(torch.ones(1, 5).double()).mean(), items=1)


def other_values(rank, world):
    model = mlp(seed=rank)
    group = torch.distributed.group.WORLD
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), group=group)
    with stepper.window() as window:
        window.backward(model(torch.ones(1, 5).double()).mean(), items=1)


def other_sizes(rank, world):
    plain, model, stepper = build("ddp")
    for window in stepper.windows(dealt(SIZES)[rank], size=1 + rank):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))


def other_scale(rank, world):
    plain, model, stepper = build("ddp", scaler=torch.amp.GradScaler("cpu", init_scale=2.0**rank))
    x, y = dealt(SIZES)[rank][0]
    with stepper.window() as window:
        window.backward(mean_loss(model, x, y), items=len(y))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (other_model, "rank 1 and rank 0 have different parameters"),
        (other_values, "rank 1 and rank 0 have different parameters"),
        (other_sizes, "rank 1 for begin \"loop 1 in windows of 2 for 'optimizer'\""),
        (other_scale, "rank 1 and rank 0 have different loss scales"),
    ],
)
def test_ranks_that_are_not_alike_are_told(two, case, words):
    with pytest.raises(RankError) as caught:
        two.run(case)
    assert all(words in text for text in caught.value.errors)


def differ(rank, world, kind, what, sync="window"):
    """Rank 1 changes something after the first update."""
    torch.manual_seed(0)
    model = spread(mlp(), kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    group = distributed.group.WORLD
    stepper = instep.Stepper(
        model,
        optimizer,
        group=group,
        sync=sync,
        clip_norm=0.5 + rank if what == "clip_norm" else 0.5,
    )
    text = ""
    for turn in range(3):
        if turn == 1 and (rank == 1 or what == "frozen by all"):
            if what in ("requires_grad", "frozen by all"):
                next(iter(model.parameters())).requires_grad_(requires_grad=False)
            elif what == "betas":
                optimizer.param_groups[0]["betas"] = (0.8, 0.999)
            elif what == "lr":
                optimizer.param_groups[0]["lr"] = 0.2
            optimizer.param_groups[0]["of the user"] = rank
        before = values(model)
        try:
            for window in stepper.windows(dealt(SIZES)[rank], size=2):
                for x, y in window:
                    window.backward(mean_loss(model, x, y), items=len(y))
        except instep.errors.WindowError as error:
            text = str(error)
            assert values(model) == before
            break
    return text, values(model)


@pytest.mark.parametrize("kind", ["ddp", "plain", "fsdp"])
@pytest.mark.parametrize("what", ["lr", "betas", "clip_norm", "requires_grad"])
def test_options_that_differ_stop_all_ranks(two, kind, what):
    found = two.run(differ, kind, what)
    for text, numbers in found:
        assert text.startswith(f"rank 1 and rank 0 differ in {what} of 'optimizer'.")
        assert ("take it from the loader before shard()" in text) == (what == "lr")
        assert numbers == found[0][1]


def test_a_layer_that_one_rank_froze_where_each_backward_is_added_up(two):
    for text, _ in two.run(differ, "fsdp", "requires_grad", "micro-batch"):
        assert text.startswith("rank 1 and rank 0 differ in requires_grad of 'optimizer'.")


@pytest.mark.parametrize("kind", ["plain", "fsdp"])
@pytest.mark.parametrize("what", ["the user's own", "frozen by all"])
def test_what_does_not_matter_may_change(two, kind, what):
    found = two.run(differ, kind, what)
    assert [text for text, _ in found] == ["", ""]
    assert found[0][1] == found[1][1]


def deal(rank, world, how):
    """Rank 1 draws another order than the others."""
    shuffle = how != "in order"
    own = torch.Generator().manual_seed(rank) if how == "generator" else None
    loader = DataLoader(range(12), batch_size=1, shuffle=shuffle, generator=own)
    loader = instep.distributed.shard(loader, seed=rank if how == "seed" else None)
    if how == "epoch":
        loader.sampler.set_epoch(rank)
    if rank == 1 and how in ("peek", "in order"):
        next(iter(loader))
    plain, model, stepper = build("ddp")
    seen = []
    for _ in range(2):
        for window in stepper.windows(loader, size=2):
            for index in window:
                seen += index.tolist()
                window.backward(model(torch.ones(1, 5).double()).mean(), items=1)
    return sorted(seen)


@pytest.mark.parametrize("how", ["seed", "peek", "generator", "epoch"])
def test_parts_of_different_orders_are_refused(two, how):
    with pytest.raises(RankError) as caught:
        two.run(deal, how)
    words = "rank 1 and rank 0 draw different orders from shard()."
    assert all(text.startswith(words) for text in caught.value.errors)


def test_an_order_without_chance_may_be_looked_at(two):
    first, second = two.run(deal, "in order")
    assert sorted(first + second) == sorted([*range(12)] * 2)


def hang(rank, world):
    rollcall.ROLL_CALL = 2.0
    plain, model, stepper = build("ddp")
    x, y = dealt(SIZES)[rank][0]
    if rank == 1:
        time.sleep(6)
        return "slept"
    try:
        with stepper.window() as window:
            window.backward(mean_loss(model, x, y), items=len(y))
    except instep.errors.WindowError as error:
        return str(error)
    return "went on"


def test_a_rank_that_hangs_is_named(three, monkeypatch):
    found = three.run(hang, timeout=2.0)
    assert found[1] == "slept"
    for text in (found[0], found[2]):
        assert text.startswith("rank 1 did not come to the close of 'optimizer' in time.")


def test_a_store_that_is_gone_is_not_waited_for(monkeypatch):
    """The group may wait half an hour; who held the store may be the one that ended."""
    monkeypatch.setattr(rollcall, "RECONNECT", 0.5)
    master = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = distributed.TCPStore(
        "127.0.0.1", master.port, timeout=timedelta(seconds=600), wait_for_workers=False
    )
    group = object()
    known = ("gloo", distributed.PrefixStore("of the group", client))
    monkeypatch.setitem(distributed_c10d._world.pg_map, group, known)
    copy = rollcall.store_of(group)
    assert copy is not None
    assert copy.timeout == timedelta(seconds=rollcall.ROLL_CALL)
    assert client.timeout == timedelta(seconds=600)
    del master, copy
    start = time.monotonic()
    assert rollcall.store_of(group) is None
    assert time.monotonic() - start < 30
    assert client.timeout == timedelta(seconds=600)


@pytest.mark.parametrize(
    ("late", "torch_said", "words"),
    [
        ([False, True], "Connection closed by peer", "rank 1 is gone, before the close."),
        ([True, True, False], "Read error: Connection reset", "ranks 0 and 1 are gone, before"),
        ([False, True], "Timed out waiting", "rank 1 did not come to the close in time."),
        ([False, False], "Connection closed by peer", "a rank is gone, before the close."),
        ([False, False], "something else", "the close failed."),
        ([False, False, True], "Timed out waiting", "this rank came too late to the close: the"),
        ([False, False, True], "Connection closed", "this rank came too late to the close: the"),
    ],
)
def test_a_rank_that_has_ended_is_not_called_late(late, torch_said, words):
    talk = object.__new__(exchange.Exchange)
    talk._rounds = 1
    talk._ranks = SimpleNamespace(rank=len(late) - 1 if len(late) > 2 else 0)
    talk._roll = SimpleNamespace(call=lambda *_, is_closed: rollcall.Absence(late))
    assert str(talk._missing("the close", RuntimeError(torch_said), 1.0)).startswith(words)


def leave(rank, world):
    plain, model, stepper = build("ddp")
    for window in stepper.windows(dealt(SIZES)[rank], size=1):
        for x, y in window:
            if rank == 2 and window.index == 1:
                raise KeyboardInterrupt
            window.backward(mean_loss(model, x, y), items=len(y))


def test_an_interrupt_on_one_rank_ends_all(three):
    start = time.monotonic()
    with pytest.raises(RankError) as caught:
        three.run(leave)
    assert "KeyboardInterrupt" in caught.value.errors[2]
    assert all("rank 2 gave up" in text for text in caught.value.errors[:2])
    assert time.monotonic() - start < 20


def refuse(rank, world, what):
    plain, model, stepper = build("ddp")
    x, y = dealt(SIZES)[rank][0]
    loss = lambda batch: (mean_loss(model, *batch), len(batch[1]))
    if what == "verify":
        instep.verify(stepper, (x, y), loss, split=1)
    if what == "step":
        stepper.step((x, y), loss, split=1, verify=True)
    if what == "batchnorm":
        stepper.step((x, y), loss, split=1, batchnorm="window")
    if what == "fused":
        build("ddp", fused=True)


@pytest.mark.parametrize("what", ["verify", "step", "batchnorm", "fused"])
def test_what_is_for_one_process_is_refused(two, what):
    with pytest.raises(RankError) as caught:
        two.run(refuse, what)
    assert all("on several ranks" in text for text in caught.value.errors)


def everybody_breaks(rank, world, kind):
    """After so many updates all ranks leave their loops, as programs do, and begin others."""
    plain, model, stepper = build(kind)
    items = []
    for _ in range(3):
        for window in stepper.windows(dealt(SIZES)[rank], size=1):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
            items.append(window.items)
            if window.index % 2:
                break
    return items, values(plain)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_loops_that_all_ranks_leave(three, kind):
    found = three.run(everybody_breaks, kind)
    assert found[0] == found[1] == found[2]
    assert found[0][0] == [6.0, 8.0] * 3


def fail_beside_a_long_header(rank, world):
    plain, model, stepper = build("ddp")
    x, y = dealt(SIZES)[rank][0]
    with stepper.window() as window:
        if rank == 1:
            raise ZeroDivisionError("a mistake")
        losses = {f"a term with a long name, {i}": mean_loss(model, x, y) for i in range(20)}
        window.backward(losses, items=dict.fromkeys(losses, len(y)))


def test_a_failure_is_heard_beside_headers_that_are_too_long(three):
    with pytest.raises(RankError) as caught:
        three.run(fail_beside_a_long_header)
    assert "ZeroDivisionError" in caught.value.errors[1]
    assert all(caught.value.errors[i].startswith("rank 1 gave up") for i in (0, 2))


def another_collective(rank, world, payload):
    """Rank 1 calls a collective of its own while rank 0 closes a window."""
    plain, model, stepper = build("ddp")
    x, y = dealt(SIZES)[rank][0]
    said = []
    for turn in range(2):
        try:
            with stepper.window() as window:
                window.backward(mean_loss(model, x, y), items=len(y))
                if rank == 1 and turn == 0:
                    mine = torch.full((exchange.SLOT,), payload, dtype=torch.uint8)
                    distributed.all_gather_into_tensor(mine.new_empty(world * exchange.SLOT), mine)
                    window.discard()
                    return []
        except InstepError as problem:
            said.append(str(problem))
    return said


@pytest.mark.parametrize("payload", [0, 1, 123, 255])
def test_what_is_no_header_is_said(two, payload):
    (first, second), _ = two.run(another_collective, payload)
    assert first.startswith("rank 1 sent something else than a header, at the close of 'optimizer'")
    assert "torch.distributed.new_group()" in first
    # Whatever it has said after that is heard by the next.
    assert second.startswith("rank 1 gave up")
