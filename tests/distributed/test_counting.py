"""Each gradient element is sent once per window: calls and bytes, counted."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
import torch
from torch import distributed, nn

import instep
from instep.engine.ranks import exchange, reduction
from tests.distributed.kit import EXACT, dealt, error, spread, values
from tests.engine.kit import mean_loss, mlp, train_whole

ELEMENTS = sum(p.numel() for p in mlp().parameters())
SIZES = [[3, 5, 1, 4, 2, 2], [2, 7], [1, 1, 1]]


@contextlib.contextmanager
def counted_collectives():
    """Note every collective that reaches torch's dispatcher: its name, and the elements sent."""
    calls = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.namespace == "c10d":
                flat = torch.utils._pytree.tree_leaves(args)
                sent = [each for each in flat if isinstance(each, torch.Tensor)]
                name = func.overloadpacket.__name__
                # The output comes first where there is one.
                calls.append((name, sent[-1].dtype, sent[-1].numel()))
            return func(*args, **(kwargs or {}))

    with Mode():
        yield calls


def train(rank, world, kind, size):
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), clip_norm=0.1)
    per_window = []
    with counted_collectives() as calls:
        for window in stepper.windows(dealt(SIZES)[rank], size=size):
            for x, y in window:
                before = len(calls)
                window.backward(mean_loss(model, x, y), items=len(y))
                # Neither forward nor backward talks.
                assert len(calls) == before
            per_window.append(Counter(calls))
            calls.clear()
    return per_window, values(plain)


HEADER = ("_allgather_base_", torch.uint8, exchange.SLOT)


def test_ddp_adds_every_element_once(three):
    for per_window, _ in three.run(train, "ddp", 3):
        assert len(per_window) == 2
        first, second = per_window
        # The first window has the agreement at the start of the loop as well.
        assert first == {HEADER: 2, ("allreduce_", torch.float64, ELEMENTS): 1}
        assert second == {HEADER: 1, ("allreduce_", torch.float64, ELEMENTS): 1}


def test_fsdp_adds_every_element_once(two):
    for per_window, _ in two.run(train, "fsdp", 3):
        second = per_window[1]
        reduced = sum(n * count for (name, _, n), count in second.items() if "reduce_sc" in name)
        gathered = sum(
            n * count
            for (name, dtype, n), count in second.items()
            if "gather" in name and dtype is torch.float64
        )
        # Rows are padded to a multiple of the ranks: 7 to 8, 3 to 4, twice with their biases.
        padded = 8 * 5 + 8 + 4 * 7 + 4
        assert reduced == padded
        # Every rank sends its own half, once.
        assert gathered == padded // 2
        assert second[HEADER] == 2
        assert second["allreduce_", torch.float64, 2] == 1


def guessed(rank, world):
    """Which gradients there are changes from window to window, and with it what is packed."""
    plain = nn.ModuleDict({"a": mlp(0), "b": mlp(1)})
    group = distributed.group.WORLD
    stepper = instep.Stepper(plain, torch.optim.SGD(plain.parameters(), lr=0.1), group=group)
    for index, window in enumerate(stepper.windows(dealt(SIZES)[rank], size=1)):
        for x, y in window:
            name = "a" if (index + rank) % 3 else "b"
            window.backward(mean_loss(plain[name], x, y), items=len(y))
    return values(plain)


def test_a_wrong_guess_of_what_there_is_changes_nothing(two):
    expected = nn.ModuleDict({"a": mlp(0), "b": mlp(1)})
    start = nn.ModuleDict({"a": mlp(0), "b": mlp(1)})
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    data = dealt(SIZES)[:2]
    for index in range(6):
        optimizer.zero_grad()
        here = [(rank, *mine[index]) for rank, mine in enumerate(data) if index < len(mine)]
        total = sum(len(y) for _, _, y in here)
        for rank, x, y in here:
            name = "a" if (index + rank) % 3 else "b"
            (mean_loss(expected[name], x, y) * len(y) / total).backward()
        optimizer.step()
    for numbers in two.run(guessed):
        assert error(numbers, expected, start) < EXACT


def in_buckets(rank, world):
    """Buckets of a few elements, and gradients that are too large for any."""
    reduction.BUCKET, reduction.LARGE = 20 * 8, 16 * 8
    plain = mlp()
    model = spread(plain, "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with counted_collectives() as calls:
        for window in stepper.windows(dealt(SIZES)[rank], size=6):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
    return [n for name, _, n in calls if name == "allreduce_"], values(plain)


def test_large_gradients_travel_alone_and_small_ones_in_buckets(two):
    expected = train_whole(mlp(), [[b for mine in dealt(SIZES)[:2] for b in mine]])
    for sent, numbers in two.run(in_buckets):
        assert sorted(sent) == [10, 21, 35]
        assert error(numbers, expected) < EXACT


def sparse(rank, world):
    torch.manual_seed(0)
    plain = nn.Embedding(20, 3, sparse=True).double()
    model = spread(plain, "ddp") if rank < 0 else plain
    group = distributed.group.WORLD
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), group=group)
    rows = [[1, 2, 2, 3], [3, 7], []][rank]
    with stepper.window() as window:
        if rows:
            window.backward(model(torch.tensor(rows)).square().sum(-1).mean(), items=len(rows))
    return values(plain)


def test_sparse_gradients_are_gathered(three):
    torch.manual_seed(0)
    start = nn.Embedding(20, 3, sparse=True).double()
    torch.manual_seed(0)
    expected = nn.Embedding(20, 3, sparse=True).double()
    expected(torch.tensor([1, 2, 2, 3, 3, 7])).square().sum(-1).mean().backward()
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    for numbers in three.run(sparse):
        assert error(numbers, expected, start) < EXACT


def half(rank, world, kind):
    torch.manual_seed(0)
    plain = mlp(dtype=torch.float32)
    model = spread(plain, kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    stepper = instep.Stepper(model, optimizer, precision="fp16", scaler=scaler, scheduler=scheduler)
    seen = []
    for index, window in enumerate(stepper.windows(dealt(SIZES)[rank], size=1)):
        for x, y in window:
            loss = mean_loss(model, x.float(), y)
            if index == 1 and rank == 1:
                loss = loss * torch.inf
            window.backward(loss, items=len(y))
        seen.append((window.skipped, scaler.get_scale(), scheduler.last_epoch))
    return seen, values(plain)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_all_ranks_skip_together_and_have_one_scale(two, kind):
    found = two.run(half, kind)
    assert found[0] == found[1]
    assert found[0][0] == [
        (None, 2.0**10, 1),
        ("non-finite", 2.0**9, 1),
        (None, 2.0**9, 2),
        (None, 2.0**10, 3),
        (None, 2.0**10, 4),
        (None, 2.0**11, 5),
    ]


def narrow(rank, world, kind):
    """bf16 parameters, whose gradients are summed in float32."""
    torch.manual_seed(0)
    plain = mlp(dtype=torch.bfloat16)
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=1.0), keep_grads=True)
    with stepper.window() as window:
        # Rank 1 has no gradient at all.
        for index in range(256 if rank == 0 else 0):
            x = torch.full((1, 5), 1.0 + index / 256, dtype=torch.bfloat16)
            window.backward(model(x).float().sum(), items=1)
    return values(plain), window.grad_norm


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_narrow_parameters_have_wide_sums(two, kind):
    found = two.run(narrow, kind)
    assert found[0] == found[1]
    model = mlp(dtype=torch.float32)
    with torch.no_grad():
        for p, q in zip(model.parameters(), mlp(dtype=torch.bfloat16).parameters(), strict=True):
            p.copy_(q)
    for index in range(256):
        (model(torch.full((1, 5), 1.0 + index / 256)).sum() / 256).backward()
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
    assert found[0][1] == pytest.approx(float(norm), rel=0.01)
