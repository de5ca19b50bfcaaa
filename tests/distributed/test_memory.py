"""Out of memory on one rank only: it replays its window by itself, and nobody waits forever."""

from __future__ import annotations

import pytest
import torch

import instep
from instep.engine.ranks.reduction import Reduction
from instep.engine.ranks.sharded import Shards
from instep.errors import InstepError
from tests.distributed.kit import EXACT, dealt, error, spread, values
from tests.engine.faults import Faults
from tests.engine.kit import mean_loss, mlp, train_whole

SIZES = [[6], [8]]


class Allocations(Faults):
    """Fails where memory is taken, but for what needs all ranks, for which it is taken before."""

    is_off = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        takes = any(each.alias_info is None for each in func._schema.returns)
        # A few numbers that the host reads off a device: there is always room for these.
        to_host = str((kwargs or {}).get("device")) == "cpu"
        is_read = to_host and isinstance(args[0], torch.Tensor) and args[0].is_cuda
        if self.is_off or not takes or is_read or func.namespace != "aten":
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def __enter__(self):
        self._patch = pytest.MonkeyPatch()
        for owner, name in ((Reduction, "run"), (Shards, "reduce"), (Shards, "gather")):
            self._patch.setattr(owner, name, self._without(getattr(owner, name)))
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._patch.undo()

    def _without(self, function):
        def run(*args):
            self.is_off = True
            try:
                return function(*args)
            finally:
                self.is_off = False

        return run


def one_step(rank, kind, faults):
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.AdamW(model.parameters(), lr=0.1), clip_norm=0.1)
    runs = []

    def loss_of(batch):
        runs.append(len(batch[1]))
        return mean_loss(model, *batch), len(batch[1])

    batch = dealt(SIZES)[rank][0]
    with faults:
        update = stepper.step(batch, loss_of, split=instep.Micro("auto"))
    # Who failed in the update itself says so in the next round.
    with stepper.window():
        pass
    return runs, update, plain


def everywhere(rank, world, kind, times, first, stride):
    """Fail at every so many operations of rank 1, each time with everything anew."""
    counting = Allocations(None)
    one_step(rank, kind, counting)
    # The ranks have different numbers of operations, and try as many times.
    told = [None] * world
    torch.distributed.all_gather_object(told, counting.seen)
    found = []
    for at in range(first, max(told), stride):
        faults = Allocations(at if rank == 1 else None, times)
        try:
            runs, update, plain = one_step(rank, kind, faults)
        except InstepError as problem:
            found.append((at, faults.raised, [], str(problem), None))
        else:
            found.append((at, faults.raised, runs, update.skipped, values(plain)))
    return found


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("times", [1, 3])
def test_the_update_is_the_same_wherever_it_fails(two, kind, times):
    ranks = two.run(everywhere, kind, times, times, 7)
    expected = train_whole(
        mlp(), [[b for mine in dealt(SIZES) for b in mine]], torch.optim.AdamW, clip_norm=0.1
    )
    raised = replayed = 0
    for other, (at, faults, runs, skipped, numbers) in zip(*ranks, strict=True):
        if times > 1 and skipped is not None:
            # No memory even on the host, in the middle of an update: nothing can be put back. Or
            # nothing for what comes before any piece, which smaller ones do not help.
            words = ("out of memory inside the step of AdamW", "a piece of one sample does not fit")
            assert skipped.startswith(words)
            assert other[3].startswith("rank 1 gave up")
            continue
        assert skipped is None, (at, skipped)
        assert error(numbers, expected) < EXACT, at
        # The other rank has the same update, and has run its batch once, unless the close itself
        # ran out of memory.
        assert other[4] == numbers
        raised += faults > 0
        replayed += sum(runs) > 8
    assert raised > (4 if times == 1 else 2)
    assert replayed > 1


def hopeless(rank, world, kind):
    faults = Allocations(20 if rank == 1 else None, times=10**9)
    try:
        one_step(rank, kind, faults)
    except InstepError as problem:
        return type(problem).__name__, str(problem)
    return "went on"


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_rank_without_any_memory_ends_all(two, kind):
    found = two.run(hopeless, kind)
    assert found[1][0] == "SplitError"
    assert found[0][0] == "WindowError"
    assert "rank 1 gave up" in found[0][1]
    assert "SplitError: a piece of one sample does not fit" in found[0][1]


def nothing_to_cut(rank, world, kind):
    """One rank has a batch without samples, and Micro("auto") all the same."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = dealt([[6], [0]])[rank][0]
    update = stepper.step(
        batch, lambda b: (mean_loss(model, *b), len(b[1])), split=instep.Micro("auto")
    )
    return values(plain), update.items, update.skipped


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_rank_without_samples(two, kind):
    expected = train_whole(mlp(), [dealt([[6]])[0]])
    for numbers, items, skipped in two.run(nothing_to_cut, kind):
        assert (items, skipped) == (6.0, None)
        assert error(numbers, expected) < EXACT


def within_a_budget(rank, world, kind, budget):
    """Sizes of the pieces, and the update; the first step measures, the second knows."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    sizes = []

    def loss_of(batch):
        sizes.append(len(batch[1]))
        return mean_loss(model, *batch), len(batch[1])

    for _ in range(2):
        sizes.clear()
        try:
            stepper.step(
                dealt([[600], [400]])[rank][0], loss_of, split=instep.Micro("auto", budget=budget)
            )
        except InstepError as problem:
            return str(problem), values(plain)
    return max(sizes), values(plain)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_budget_on_several_ranks(two, kind):
    """Of parameters that are sharded their parts count, and in a window the whole ones."""
    expected = mlp()
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        parts = [dealt([[600], [400]])[rank][0] for rank in range(2)]
        x, y = (torch.cat(each) for each in zip(*parts, strict=True))
        mean_loss(expected, x, y).backward()
        optimizer.step()
    for budget, is_cut in ((10**9, False), (10**5, True)):
        first, second = two.run(within_a_budget, kind, budget)
        assert (first[0] < 600) is is_cut
        assert error(first[1], expected) < EXACT
        assert first[1] == second[1]
    start = [p.detach().flatten().tolist() for p in mlp().parameters()]
    for said, numbers in two.run(within_a_budget, kind, 1000):
        assert "a piece of one sample does not fit" in said
        assert numbers == start
