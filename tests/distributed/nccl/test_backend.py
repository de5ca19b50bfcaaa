"""A group that is held to NCCL's rules has teeth: what breaks one is found, whoever catches it."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch
from torch import distributed as dist
from torch.distributed import ReduceOp

from tests.distributed.crew import RankError
from tests.distributed.nccl.backend import Call, Record
from tests.distributed.nccl.crew import problem_of
from tests.distributed.nccl.rules import RuleError


def honest(rank, world):
    """One of each collective, as NCCL takes them."""
    ones = torch.ones(world)
    found = [torch.empty(world) for _ in range(world)]
    dist.all_reduce(ones)
    dist.all_gather(found, ones)
    whole, part = torch.empty(world * world), torch.empty(1)
    dist.all_gather_single(whole, ones)
    dist.reduce_scatter_single(part, ones)
    dist.broadcast(ones, src=1)
    dist.reduce(ones, dst=0)
    dist.gather(part, [torch.empty(1) for _ in range(world)] if rank == 0 else None, dst=0)
    dist.scatter(part, [torch.ones(1)] * world if rank == 0 else None, src=0)
    dist.all_to_all_single(torch.empty(world), ones)
    dist.barrier()
    told = [None] * world
    dist.all_gather_object(told, {"rank": rank, "long": "x" * rank})
    half = dist.new_group(list(range(world - 1)))
    if rank < world - 1:
        dist.all_reduce(ones, group=half)
    return dist.get_backend(), [each["rank"] for each in told], whole.tolist()


def test_what_nccl_takes_arrives(three):
    before = three.calls
    for name, told, whole in three.run(honest):
        assert (name, told) == ("held_to_nccl", [0, 1, 2])
        assert whole == [3.0] * 9
    # Twelve calls of each, one more of two of them, and one of those that make the smaller group.
    assert three.calls - before >= 3 * 12 + 2


BROKEN = {
    "NCCL has no torch.int16": lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16)),
    "not contiguous": lambda: dist.broadcast(torch.ones(4, 4).t(), src=0),
    "sparse": lambda: dist.all_reduce(torch.eye(2).to_sparse()),
    "BXOR": lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), ReduceOp.BXOR),
    r"sizes \[2, 3\]": lambda: dist.all_gather([torch.empty(2), torch.empty(3)], torch.ones(2)),
    "reduce_scatter: sizes": lambda: dist.reduce_scatter(
        torch.empty(2), [torch.ones(2), torch.ones(3)]
    ),
    "from whom": lambda: dist.recv(torch.empty(2)),
    "allreduce: several tensors": lambda: by_the_group("allreduce", pair()),
    "broadcast: several tensors": lambda: by_the_group("broadcast", pair(), to_other("Broadcast")),
    "allgather_coalesced: NCCL has none": lambda: by_the_group(
        "allgather_coalesced", [pair()], [torch.ones(2)]
    ),
    "gather: outputs on a rank": lambda: by_the_group(
        "gather", [pair()], [torch.ones(2)], to_other("Gather")
    ),
    "scatter: inputs on a rank": lambda: by_the_group(
        "scatter", [torch.ones(2)], [pair()], to_other("Scatter")
    ),
    "alltoall: not one tensor for each": lambda: by_the_group(
        "alltoall", [torch.ones(2)], [torch.ones(2)]
    ),
    "two threads": lambda: in_a_thread(lambda: dist.all_reduce(torch.ones(1))),
}


def pair():
    return [torch.ones(2), torch.ones(2)]


def by_the_group(name, *args):
    """Call past the functions of torch, which would not let it through, as its C++ may."""
    getattr(dist.group.WORLD, name)(*args)


def to_other(name):
    """Options whose root is the other one of two ranks."""
    options = getattr(dist, f"{name}Options")()
    options.rootRank = 1 - dist.get_rank()
    return options


def in_a_thread(function):
    def run():
        with contextlib.suppress(RuleError):
            function()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def break_a_rule(rank, world, words):
    with contextlib.suppress(RuleError):
        BROKEN[words]()


@pytest.mark.parametrize("words", BROKEN)
def test_what_breaks_a_rule_is_found_though_it_is_caught(two, words):
    with pytest.raises(AssertionError, match=rf"rank 0: .*{words}") as caught:
        two.run(break_a_rule, words)
    assert not isinstance(caught.value, RankError)


def unlike(rank, world, how):
    """What gloo does not mind."""
    if how == "operations":
        dist.all_reduce(torch.ones(2), ReduceOp.SUM if rank else ReduceOp.MAX)
    elif how == "types":
        dist.all_reduce(torch.ones(2, dtype=torch.float32 if rank else torch.int32))
    elif how == "formats":
        tensor = torch.ones(2, 3, 4, 5)
        dist.broadcast(tensor if rank else tensor.to(memory_format=torch.channels_last), src=0)
    elif rank:
        dist.all_gather_single(torch.empty(4), torch.ones(2), async_op=True)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("operations", "'MAX'.*'SUM'"),
        ("types", "torch.int32.*torch.float32"),
        ("formats", "channels last"),
        ("one more", "None, Call"),
    ],
)
def test_ranks_that_do_not_call_the_same_are_found(two, how, words):
    with pytest.raises(AssertionError, match=words):
        two.run(unlike, how)


ONE, OTHER = Call("allreduce", "torch.float32", (2,), "SUM"), Call("barrier")


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([[ONE, OTHER], [ONE, OTHER]], ""),
        ([[ONE, OTHER], [OTHER, ONE]], "call 0"),
        ([[ONE], [ONE, OTHER]], "call 1"),
        ([[ONE], [ONE._replace(sizes=(3,))]], "call 0"),
    ],
)
def test_order_and_shapes_are_compared(calls, words):
    records = [Record({"g": each}, {"g": [0, 1]}) for each in calls]
    assert words in problem_of(records) if words else problem_of(records) == ""


def test_groups_of_some_ranks_are_compared_among_these():
    everybody, some = [0, 1, 2], [0, 2]
    records = [
        Record({"all": [ONE], "some": [OTHER]}, {"all": everybody, "some": some}),
        Record({"all": [ONE]}, {"all": everybody}),
        Record({"all": [ONE]}, {"all": everybody, "some": some}),
    ]
    assert problem_of(records).startswith("group some of ranks [0, 2]: call 0 is")
    records[2].calls["some"] = [OTHER]
    assert problem_of(records) == ""


def test_groups_that_nobody_holds_to_rules_are_noticed():
    assert problem_of([Record(), Record()]) == "no group was held to the rules"
