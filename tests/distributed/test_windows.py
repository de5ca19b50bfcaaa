"""Windows on several ranks are those of one process with all their data, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import instep
from tests.distributed.kit import EXACT, dealt, error, spread, told, values
from tests.engine.kit import counted, mean_loss, mlp, train_whole

KINDS = ["ddp", "fsdp"]


def train(rank, world, kind, sizes, size, options=None, ignore=()):
    plain = mlp()
    model = spread(plain, kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    group = torch.distributed.group.WORLD if kind == "plain" else None
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler, group=group, **(options or {}))
    updates = []
    for window in stepper.windows(dealt(sizes, ignore=ignore)[rank], size=size):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=counted(y))
        updates += window.updates
    return values(plain), told(updates), scheduler.last_epoch


def reference(sizes, size, *, ignore=(), **options):
    """The same data in one process: windows of what all ranks have in theirs."""
    data = dealt(sizes, ignore=ignore)
    count = max(-(-len(mine) // size) for mine in data)
    windows = [
        [batch for mine in data for batch in mine[i * size : (i + 1) * size]] for i in range(count)
    ]
    model = mlp()
    for index, window in enumerate(windows):
        model = train_whole(model, [window], lr=0.1 * 0.5**index, **options)
    return model, count


RAGGED = {
    "uneven tokens": [[3, 5, 1, 4], [2, 7, 6, 1], [8, 1, 1, 1]],
    "uneven micro-batches": [[3, 5, 1, 4, 2], [2], [4, 4, 1]],
    "an empty window": [[3, 5, 2, 2], [4, 2], [1, 1, 5, 6]],
    "an empty loader": [[3, 5, 1], [], [2]],
}


@pytest.mark.parametrize("kind", [*KINDS, "plain"])
@pytest.mark.parametrize("name", RAGGED)
def test_the_update_is_that_of_one_process(crew, kind, name):
    sizes = RAGGED[name][: crew.world]
    found = crew.run(train, kind, sizes, 2)
    expected, count = reference(sizes, 2)
    for numbers, updates, epochs in found:
        assert error(numbers, expected) < EXACT
        assert updates == found[0][1]
        assert len(updates) == epochs == count


@pytest.mark.parametrize("kind", ["ddp unused", "ddp static", "ddp views"])
def test_ways_to_build_ddp(two, kind):
    sizes = RAGGED["uneven micro-batches"][:2]
    expected, _ = reference(sizes, 2)
    for numbers, _, _ in two.run(train, kind, sizes, 2):
        assert error(numbers, expected) < EXACT


OPTIONS = {
    "clip_norm": {"clip_norm": 0.05},
    "clip_value": {"clip_value": 0.01},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPTIONS)
def test_clipping_sees_the_gradient_of_all_ranks(two, kind, name):
    sizes = RAGGED["uneven micro-batches"][:2]
    found = two.run(train, kind, sizes, 2, OPTIONS[name])
    expected, _ = reference(sizes, 2, **OPTIONS[name])
    for numbers, updates, _ in found:
        assert error(numbers, expected) < EXACT
        assert updates == found[0][1]


@pytest.mark.parametrize("kind", KINDS)
def test_ignored_targets_and_windows_without_any(three, kind):
    # Rank 1's second window has targets, all of them ignored.
    sizes = [[3, 4, 2, 2], [1, 1, 1, 1], [5]]
    found = three.run(train_ignoring, kind, sizes)
    data = blanked(sizes)
    windows = [[b for mine in data for b in mine[i : i + 2]] for i in (0, 2)]
    expected = train_whole(mlp(), windows)
    for numbers, updates in found:
        assert error(numbers, expected) < EXACT
        assert [u[2] for u in updates] == [sum(counted(y) for _, y in w) for w in windows]


def blanked(sizes):
    data = dealt(sizes, ignore=[0])
    data[1] = [(x, y if i < 2 else torch.full_like(y, -100)) for i, (x, y) in enumerate(data[1])]
    return data


def train_ignoring(rank, world, kind, sizes):
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    updates = []
    for window in stepper.windows(blanked(sizes)[rank], size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=(y != -100).sum())
        updates.append(window.update)
    return values(plain), told(updates)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_has_anything(two, kind):
    for _, updates, epochs in two.run(train, kind, [[], []], 2):
        assert not updates
        assert not epochs
    for numbers, updates in two.run(step_on_nothing, kind):
        assert numbers == [p.flatten().tolist() for p in mlp().parameters()]
        assert [u[-1] for u in updates] == ["empty"]


def step_on_nothing(rank, world, kind):
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with stepper.window() as window:
        pass
    return values(plain), told(window.updates)


class TwoHeads(nn.Module):
    """Two losses with denominators of their own, and a head that only some ranks use."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(5, 7).double()
        self.a = nn.Linear(7, 3).double()
        self.b = nn.Linear(7, 3).double()
        self.unused = nn.Linear(2, 2).double()

    def forward(self, x, heads="ab"):
        hidden = self.body(x).tanh()
        return {name: getattr(self, name)(hidden) for name in heads}


def heads_of(rank):
    return {0: "ab", 1: "a", 2: "b"}[rank]


def losses_of(model, x, y, heads):
    out = model(x, heads)
    kept = y != 0
    losses, items = {}, {}
    for name in heads:
        mask = kept if name == "b" else torch.ones_like(kept)
        losses[name] = nn.functional.cross_entropy(out[name][mask], y[mask], reduction="mean")
        items[name] = int(mask.sum())
    return losses, items


def train_terms(rank, world, kind, sizes, count):
    plain = TwoHeads()
    if kind == "fsdp":
        torch.distributed.fsdp.fully_shard(plain.body)
        torch.distributed.fsdp.fully_shard(plain.a)
    model = spread(plain, kind) if kind != "fsdp" else torch.distributed.fsdp.fully_shard(plain)
    stepper = instep.Stepper(model, torch.optim.AdamW(model.parameters(), lr=0.1), clip_norm=0.3)
    updates = []
    counts = (lambda batch: losses_of_counts(batch, heads_of(rank))) if count else None
    for window in stepper.windows(dealt(sizes)[rank], size=2, count=counts):
        for x, y in window:
            losses, items = losses_of(model, x, y, heads_of(rank))
            window.backward(losses, items=items, weight={"b": 0.5} if "b" in losses else 1.0)
        updates.append(window.update)
    return values(plain), [u.losses for u in updates], plain.unused.weight.grad is None


def losses_of_counts(batch, heads):
    return {name: int((batch[1] != 0).sum()) if name == "b" else len(batch[1]) for name in heads}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [False, True])
def test_terms_and_parameters_that_not_every_rank_has(three, kind, count):
    sizes = [[6, 5], [7, 4], [8, 9]]
    found = three.run(train_terms, kind, sizes, count)
    start, expected = TwoHeads(), TwoHeads()
    optimizer = torch.optim.AdamW(expected.parameters(), lr=0.1)
    data = dealt(sizes)
    sums = {"a": [0.0, 0], "b": [0.0, 0]}
    for rank, mine in enumerate(data):
        for x, y in mine:
            losses, items = losses_of(expected, x, y, heads_of(rank))
            for name, loss in losses.items():
                sums[name][0] = sums[name][0] + loss * items[name]
                sums[name][1] += items[name]
    means = {name: total / items for name, (total, items) in sums.items()}
    (means["a"] + 0.5 * means["b"]).backward()
    nn.utils.clip_grad_norm_(expected.parameters(), 0.3)
    optimizer.step()
    for numbers, losses, is_untouched in found:
        assert error(numbers, expected, start) < EXACT
        assert is_untouched
        assert losses == found[0][1]
        for name, mean in means.items():
            assert losses[0][name] == pytest.approx(mean.item(), rel=1e-13)
