"""FSDP2 with gradients added up after each micro-batch: less memory, the same update."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import instep
from tests.distributed.crew import RankError
from tests.distributed.kit import EXACT, dealt, error, spread, told, values
from tests.engine.kit import counted, mean_loss, mlp, train_whole

SIZES = {
    "even": [[3, 5, 1, 4], [2, 7, 6, 1], [8, 1, 1, 1]],
    "uneven": [[3, 5, 1, 4, 2], [2], [4, 4, 1]],
}


def train(rank, world, sizes, size, options=None):
    plain = mlp()
    model = spread(plain, "fsdp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer, sync="micro-batch", **(options or {}))
    updates, whole, seen = [], 0, []
    for window in stepper.windows(dealt(sizes, ignore=[1])[rank], size=size):
        for x, y in window:
            seen.append(len(y))
            window.backward(mean_loss(model, x, y), items=counted(y))
            # Nothing but shards is held between two micro-batches.
            whole += not all(hasattr(p, "full_tensor") for p in model.parameters())
        updates += window.updates
    return values(plain), told(updates), whole, seen


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.05}, {"clip_value": 0.01}])
def test_the_update_is_that_of_one_process(crew, name, options):
    sizes = SIZES[name][: crew.world]
    found = crew.run(train, sizes, 2, options)
    data = dealt(sizes, ignore=[1])
    count = max(-(-len(mine) // 2) for mine in data)
    windows = [[b for mine in data for b in mine[i * 2 : i * 2 + 2]] for i in range(count)]
    expected = train_whole(mlp(), windows, **options)
    for rank, (numbers, updates, whole, seen) in enumerate(found):
        assert error(numbers, expected) < EXACT
        assert updates == found[0][1]
        assert [u[2] for u in updates] == [sum(counted(y) for _, y in w) for w in windows]
        assert not whole
        # The loop body sees each of its batches once, and no others.
        assert seen == sizes[rank]


class Noisy(nn.Module):
    """Dropout, and statistics that a run for nothing must not change."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(5, 7).double()
        self.norm = nn.BatchNorm1d(7).double()
        self.last = nn.Linear(7, 3).double()

    def forward(self, x):
        return self.last(nn.functional.dropout(self.norm(self.first(x)), 0.1))


def run_along(rank, world):
    plain = Noisy()
    fully_shard(plain.first)
    model = fully_shard(plain)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), sync="micro-batch")
    after = []
    for window in stepper.windows(dealt([[3, 4, 5], [2]])[rank], size=3):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
            after = [plain.norm.running_mean.tolist(), torch.get_rng_state().tolist()]
    now = [plain.norm.running_mean.tolist(), torch.get_rng_state().tolist()]
    return after == now, int(plain.norm.num_batches_tracked)


def test_running_along_leaves_no_trace(two):
    assert two.run(run_along) == [(True, 3), (True, 1)]


def blank(rank, world):
    """A micro-batch without items, whose loss is 0/0."""
    plain = mlp()
    model = spread(plain, "fsdp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), sync="micro-batch")
    data = dealt([[3, 4], [2, 5]])
    data[1][0] = (data[1][0][0], torch.full_like(data[1][0][1], -100))
    for window in stepper.windows(data[rank], size=2):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=counted(y))
    return values(plain), window.skipped


def test_a_micro_batch_without_items_adds_nothing(two):
    found = two.run(blank)
    data = dealt([[3, 4], [2, 5]])
    expected = train_whole(mlp(), [[*data[0], data[1][1]]])
    for numbers, skipped in found:
        assert skipped is None
        assert error(numbers, expected) < EXACT


def in_pieces(rank, world):
    plain = mlp()
    model = spread(plain, "fsdp")
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), sync="micro-batch")
    update = stepper.step(
        dealt([[9], [2]])[rank][0], lambda batch: mean_loss(model, *batch), split=2
    )
    return values(plain), told([update])


def test_pieces_of_a_batch_need_not_be_as_many(two):
    found = two.run(in_pieces)
    expected = train_whole(mlp(), [[b for mine in dealt([[9], [2]]) for b in mine]])
    for numbers, updates in found:
        assert error(numbers, expected) < EXACT
        assert updates == found[0][1]


def refuse(rank, world, what):
    model = spread(mlp(), "fsdp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = dealt([[3, 4], [] if what == "nothing" else [2, 1]])[rank]
    if what == "optimizers":
        ends = list(model.parameters())
        optimizer = {"a": torch.optim.SGD(ends[:1]), "b": torch.optim.SGD(ends[1:])}
    stepper = instep.Stepper(model, optimizer, sync="micro-batch")
    if what == "auto":
        stepper.step(data[0], lambda b: mean_loss(model, *b), split=instep.Micro("auto"))
    if what == "by hand":
        with stepper.window() as window:
            for x, y in data[rank:]:
                window.backward(mean_loss(model, x, y), items=len(y))
    if what == "encode":
        stepper.step(data[0], lambda f, b: f.mean(), encode=lambda b: model(b[0]), gather=True)
    for window in stepper.windows(data, size=2):
        for x, y in window:
            loss = mean_loss(model, x, y)
            losses = {"one": loss, "two": loss} if what == "terms" else loss
            window.backward(losses, items={"one": 1, "two": 1} if what == "terms" else 1)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("nothing", "rank 1 had no batch yet to run along with"),
        ("optimizers", "several named optimizers"),
        ("auto", "an automatic split"),
        ("encode", "encode= with sync='micro-batch'"),
        ("terms", "a loss of several terms"),
        ("by hand", 'stepper.window() with sync="micro-batch"'),
    ],
)
def test_what_cannot_be_done_is_refused_everywhere(two, what, words):
    with pytest.raises(RankError) as caught:
        two.run(refuse, what)
    assert all(words in text for text in caught.value.errors)


def mixed(rank, world, sync):
    """FSDP's own mixed precision: bf16 to compute, float32 to add up and to update."""
    plain = mlp(dtype=torch.float32)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in (plain[0], plain[2]):
        fully_shard(layer, mp_policy=policy)
    model = fully_shard(plain, mp_policy=policy)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), sync=sync)
    for window in stepper.windows(dealt(SIZES["uneven"])[rank], size=2):
        for x, y in window:
            window.backward(mean_loss(model, x.float(), y), items=len(y))
    dtypes = {str(p.dtype) for p in model.parameters()}
    policies = {
        str(param.reduce_dtype)
        for group in (model._get_fsdp_state()._fsdp_param_group,)
        for param in (group.fsdp_params if group else [])
    }
    return values(plain), dtypes, policies


@pytest.mark.parametrize("sync", ["window", "micro-batch"])
def test_the_policy_of_fsdp_is_kept(two, sync):
    found = two.run(mixed, sync)
    assert found[0] == found[1]
    data = dealt(SIZES["uneven"][:2])
    windows = [[b for mine in data for b in mine[i * 2 : i * 2 + 2]] for i in range(3)]
    windows = [[(x.float(), y) for x, y in window] for window in windows]
    expected = train_whole(mlp(dtype=torch.float32), windows)
    assert error(found[0][0], expected, mlp(dtype=torch.float32)) < 0.02
    assert found[0][1] == {"torch.float32"}


def train_blank(rank, world, blank):
    """Train in windows of one batch, of which some have nothing that counts on any rank."""
    plain = mlp()
    model = spread(plain, "fsdp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer, sync="micro-batch")
    updates = []
    for window in stepper.windows(blanks(blank)[rank], size=1):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=counted(y))
        updates += window.updates
    return values(plain), told(updates)


def blanks(blank):
    data = dealt([[3, 2], [4, 1], [2, 5]])
    for rank, index in blank:
        x, y = data[rank][index]
        data[rank][index] = x, torch.full_like(y, -100)
    # One rank has ended before the last window.
    return [data[0][:1], data[1], data[2][:1]]


@pytest.mark.parametrize("blank", [[(0, 0), (1, 0), (2, 0)], [(1, 1)], [(0, 0), (1, 1)]])
def test_a_window_in_which_nothing_counts_is_skipped(crew, blank):
    data = blanks(blank)[: crew.world]
    windows = [[mine[at] for mine in data if at < len(mine)] for at in range(2)]
    counts = [sum(counted(y) for _, y in window) for window in windows]
    expected = train_whole(mlp(), [w for w, items in zip(windows, counts, strict=True) if items])
    for numbers, updates in crew.run(train_blank, blank):
        assert error(numbers, expected) < EXACT
        assert [u[2] for u in updates] == counts
        assert [u[-1] for u in updates] == [None if items else "empty" for items in counts]
