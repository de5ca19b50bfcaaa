"""What surrounds windows on several ranks: settings, states, evaluation, data."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import instep
from instep.engine.ranks.sharded import OURS
from instep.engine.ranks.world import param_groups_of
from tests.distributed.crew import RankError
from tests.distributed.kit import EXACT, dealt, error, spread, told, values
from tests.engine.kit import mean_loss, mlp, train_whole

SIZES = [[3, 5, 1, 4], [2, 7, 6], [1]]
KINDS = ["ddp", "fsdp"]


def textbook(rank, world):
    """A plain loop over DDP: the mean over ranks of their means."""
    plain = mlp()
    model = DistributedDataParallel(plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = dealt(SIZES)[rank][0]
    mean_loss(model, x, y).backward()
    optimizer.step()
    return values(plain)


def test_the_comparison_has_teeth(two):
    found = two.run(textbook)
    expected = train_whole(mlp(), [[mine[0] for mine in dealt(SIZES)[:2]]])
    assert error(found[0], expected) > 0.01


def settings(rank, world):
    """DDP and FSDP are as their user had them, whenever no window is open."""
    plain = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)).double()
    model = DistributedDataParallel(plain)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    names = ("require_backward_grad_sync", "require_forward_param_sync", "broadcast_buffers")
    before = [getattr(model, name) for name in names]
    inside = []
    for window in stepper.windows(dealt(SIZES)[rank], size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y) if len(x) > 1 else model(x[:0]).sum(), items=0)
            inside.append([getattr(model, name) for name in names])
    sharded = spread(mlp(), "fsdp")
    other = instep.Stepper(sharded, torch.optim.SGD(sharded.parameters(), lr=0.1))
    x, y = dealt(SIZES)[rank][0]
    mean_loss(sharded, x, y)  # what FSDP decides at its first forward
    groups = [group for layer in (sharded[0], sharded[2]) for group in param_groups_of(layer)]
    kept = [{name: getattr(group, name) for name in OURS} for group in groups]
    with other.window() as window:
        window.backward(mean_loss(sharded, x, y), items=len(y))
    after = [{name: getattr(group, name) for name in OURS} for group in groups]
    same = [getattr(model, name) for name in names] == before
    return same, all(each == [False] * 3 for each in inside), kept == after


def test_wrappers_are_as_before(two):
    for same, quiet, kept in two.run(settings):
        assert same
        assert quiet
        assert kept


def evaluate(rank, world, kind):
    """Evaluation between windows and inside of them, and what is in .grad after one."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(
        model, torch.optim.SGD(model.parameters(), lr=0.1), keep_grads=True, clip_norm=0.1
    )
    x, y = dealt(SIZES)[0][0]
    seen, norms = [], []
    for window in stepper.windows(dealt(SIZES)[rank], size=2):
        for a, b in window:
            window.backward(mean_loss(model, a, b), items=len(b))
            with torch.no_grad():
                mean_loss(model, x, y)
        with torch.no_grad():
            seen.append(mean_loss(model, x, y).item())
        grads = [p.grad for p in model.parameters()]
        full = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in grads]
        norms.append(float(nn.utils.get_total_norm(full)))
    return seen, norms


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_sees_the_new_weights(two, kind):
    found = two.run(evaluate, kind)
    data = dealt(SIZES)[:2]
    windows = [[b for mine in data for b in mine[i : i + 2]] for i in (0, 2)]
    model = mlp()
    expected = []
    for window in windows:
        model = train_whole(model, [window], clip_norm=0.1)
        expected.append(mean_loss(model, *data[0][0]).item())
    for seen, norms in found:
        assert seen == pytest.approx(expected, rel=1e-12)
        assert norms == pytest.approx([0.1, 0.1], rel=1e-4)


def resume(rank, world, kind, stop):
    """Save in the middle of a window, build everything anew, and go on."""

    def build(state=None):
        plain = mlp()
        model = spread(plain, kind)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        stepper = instep.Stepper(model, optimizer, clip_norm=0.1)
        if state is not None:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            stepper.load_state_dict(state["stepper"])
        return plain, model, optimizer, stepper

    def run(parts, stop=None):
        plain, model, optimizer, stepper = parts
        done = 0
        for window in stepper.windows(dealt(SIZES)[rank], size=2):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
                done += 1
                if done == stop:
                    return {
                        "stepper": stepper.state_dict(),
                        "model": {k: v.clone() for k, v in model.state_dict().items()},
                        "optimizer": optimizer.state_dict(),
                    }
        return values(plain)

    whole = run(build())
    saved = run(build(), stop)
    return whole == run(build(saved))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_from_the_middle_of_a_window_continues_bit_for_bit(two, kind):
    # Both ranks have done three micro-batches: one in their second window.
    assert two.run(resume, kind, 3) == [True, True]


def many_terms(rank, world):
    """So many names that a header is longer than its slot, and one rank that has none of them."""
    plain = mlp()
    model = spread(plain, "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with stepper.window() as window:
        if rank == 0:
            x, y = dealt(SIZES)[0][0]
            losses = {f"a term with a long name, {i}": mean_loss(model, x, y) for i in range(20)}
            window.backward(losses, items=dict.fromkeys(losses, len(y)))
    return values(plain), window.losses


def test_headers_may_be_long(two):
    found = two.run(many_terms)
    assert found[0] == found[1]
    assert len(found[0][1]) == 20


def empty(rank, world):
    model = spread(mlp(), "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), empty="raise")
    try:
        with stepper.window():
            pass
    except instep.errors.WindowError as error:
        told = error.what
    # All have raised, so that nobody has to be told, and the next window is in step.
    x, y = dealt(SIZES)[rank][0]
    with stepper.window() as window:
        window.backward(mean_loss(model, x, y), items=len(y))
    return told, window.items


def test_an_empty_window_raises_on_all_ranks_if_asked(two):
    assert two.run(empty) == [("window closed with 0 items.", 5.0)] * 2


class Partly(nn.Module):
    """Frozen parameters, and some that no optimizer has."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.frozen = nn.Linear(5, 5).double().requires_grad_(False)
        self.body = nn.Linear(5, 7).double()
        self.more = nn.Linear(7, 3).double()

    def forward(self, x):
        return self.more(self.body(self.frozen(x)).tanh())


def partly(rank, world, kind):
    plain = Partly()
    if kind == "fsdp":
        torch.distributed.fsdp.fully_shard(plain.body)
        model = torch.distributed.fsdp.fully_shard(plain)
    else:
        model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(plain.body.parameters(), lr=0.1))
    for window in stepper.windows(dealt(SIZES)[rank], size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
    return values(plain), told(window.updates)


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_the_optimizer_has_is_trained(two, kind):
    found = two.run(partly, kind)
    expected = Partly()
    optimizer = torch.optim.SGD(expected.body.parameters(), lr=0.1)
    data = dealt(SIZES)[:2]
    for i in (0, 2):
        pairs = [b for mine in data for b in mine[i : i + 2]]
        optimizer.zero_grad()
        mean_loss(
            expected, torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])
        ).backward()
        optimizer.step()
    for numbers, updates in found:
        assert error(numbers, expected, Partly()) < EXACT
        assert updates == found[0][1]


def sharded_data(rank, world):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(23, 5).double(), torch.randint(0, 3, (23,)))
    torch.manual_seed(rank)
    loader = instep.distributed.shard(DataLoader(data, batch_size=4, shuffle=True))
    plain = mlp()
    model = spread(plain, "ddp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    counts = []
    for _ in range(2):
        for window in stepper.windows(loader, size=10):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
            counts.append(window.items)
    return values(plain), counts


def test_an_epoch_over_sharded_data_is_one_over_all(three):
    torch.manual_seed(0)
    x, y = torch.randn(23, 5).double(), torch.randint(0, 3, (23,))
    expected = train_whole(mlp(), [[(x, y)], [(x, y)]])
    for numbers, counts in three.run(sharded_data):
        assert counts == [23.0, 23.0]
        assert error(numbers, expected) < EXACT


def scheduled(rank, world, samples, size):
    """A schedule as long as `instep explain schedulers` says, over data that divide unevenly."""
    data = TensorDataset(torch.randn(samples, 5).double(), torch.zeros(samples, dtype=torch.long))
    whole = DataLoader(data, batch_size=2)
    updates = 2 * math.ceil(len(whole) / (world * size))
    model = spread(mlp(), "ddp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, total_iters=updates)
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler)
    loader = instep.distributed.shard(whole)
    for _ in range(2):
        for window in stepper.windows(loader, size=size):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
    return updates, scheduler.last_epoch, len(stepper.windows(loader, size=size))


@pytest.mark.parametrize(("samples", "size"), [(13, 2), (7, 1), (25, 3)])
def test_a_schedules_length_is_that_of_the_loader_before_it_is_sharded(three, samples, size):
    found = three.run(scheduled, samples, size)
    for updates, steps, _ in found:
        assert steps == updates
    assert samples != 7 or {own for *_, own in found} == {1, 2}  # one that differs by rank


def test_groups_that_differ_are_refused(three):
    with pytest.raises(RankError, match="different groups of processes"):
        three.run(in_two_groups)


def in_two_groups(rank, world):
    pair = torch.distributed.new_group([0, 1])
    if rank == 2:
        return
    model = DistributedDataParallel(mlp(), process_group=pair)
    optimizer = torch.optim.SGD(model.parameters())
    instep.Stepper(model, optimizer, group=torch.distributed.group.WORLD)


def some_ranks(rank, world):
    """Two of three ranks train together; the third one by itself, in the same program."""
    pair = torch.distributed.new_group([0, 1])
    plain = mlp()
    model = plain if rank == 2 else DistributedDataParallel(plain, process_group=pair)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = dealt(SIZES)[rank][0]
    with stepper.window() as window:
        window.backward(F.cross_entropy(model(x), y), items=len(y))
    return window.items, stepper.ranks.world


def test_a_part_of_the_ranks(three):
    assert three.run(some_ranks) == [(5.0, 2), (5.0, 2), (1.0, 1)]
