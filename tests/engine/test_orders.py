"""Orders that are dealt out stay with the loader that was given, and each has a number."""

from __future__ import annotations

import gc
import weakref
from array import array

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

from instep.distributed import shard
from instep.engine import orders
from instep.engine.orders import number_of, orders_of

WHOLE = (0, 1)


def asked(loader, *, seed=None, turn=WHOLE):
    return orders_of(loader, loader.sampler, seed, turn)


def asked_elsewhere(loader, *, seed=None, turn=WHOLE):
    return orders_of(loader, loader.sampler, seed, turn)


def test_orders_go_on_where_they_are_asked_for_again():
    loader, other = (DataLoader(range(8), shuffle=True) for _ in range(2))
    assert asked(loader) is asked(loader)
    assert asked(loader, seed=0) is asked(loader)
    assert asked(loader).serial == asked(loader).serial != asked(other).serial
    # Of another loader, for another part or with another seed they begin.
    for same in (asked(other), asked(loader, turn=(1, 2)), asked(loader, turn=(0, 2))):
        assert same is not asked(loader)
        assert torch.equal(same.generator.get_state(), asked(loader).generator.get_state())
    assert asked(loader, seed=1).generator.initial_seed() == 1


def test_another_line_has_other_orders():
    loader = DataLoader(range(8), shuffle=True)
    here, there = asked(loader), asked_elsewhere(loader)
    assert here.generator.initial_seed() == here.seed == there.seed == 0
    assert there.generator.initial_seed() != 0
    assert asked_elsewhere(loader) is there
    # The same in every process that asks in this order.
    again = DataLoader(range(8), shuffle=True)
    asked(again)
    assert asked_elsewhere(again).generator.initial_seed() == there.generator.initial_seed()
    assert asked_elsewhere(loader, turn=(0, 2)).generator.initial_seed() == 0


def test_a_generator_of_its_own_decides():
    loader = DataLoader(range(8), shuffle=True, generator=torch.Generator().manual_seed(7))
    own = loader.generator
    assert asked(loader).generator is asked_elsewhere(loader).generator is own
    assert asked(loader).follows
    assert asked(loader, seed=5).generator is not own
    loader.sampler.generator = torch.Generator()
    assert asked(loader).generator is loader.sampler.generator


def test_orders_end_with_their_loader():
    loader = DataLoader(range(8), sampler=RandomSampler(range(8)))
    generator = weakref.ref(loader)
    part, before = shard(loader, rank=0, world=2), len(orders._kept._of)
    del loader
    gc.collect()
    assert generator() is None
    assert len(orders._kept._of) == before - 1
    assert len(list(part)) == 4


def test_a_seed_for_every_epoch_keeps_a_few():
    loader = DataLoader(range(8), shuffle=True)
    for seed in range(orders.KEPT * 2):
        asked(loader, seed=seed)
    assert len(orders._kept.of(loader)) == orders.KEPT


SAME = {
    "numbers": ([3, 1, 2], [np.int64(3), np.int64(1), np.int64(2)]),
    "tensors": ([3, 1, 2], list(torch.tensor([3, 1, 2]))),
    "batches": ([[3, 1], [2]], [(3, 1), (2,)]),
    "arrays": ([[3, 1], [2]], [np.array([3, 1]), np.array([2])]),
    "batches in tensors": ([[3, 1], [2]], [torch.tensor([3, 1]), torch.tensor([2])]),
    "objects, of which nothing is known": ([object()], [object()]),
    "what is drawn besides a number": ([(3, 0.5), (1, 0.25)], [(3, 0.75), (1, 0.125)]),
    "nothing": ([], []),
}
OTHER = {
    "numbers": ([3, 1, 2], [3, 2, 1]),
    "more of them": ([3, 1, 2], [3, 1, 2, 0]),
    "a range": (range(4), range(5)),
    "batches": ([[3, 1], [2]], [[3], [1, 2]]),
    "samples and batches": ([3], [[3]]),
    "arrays": ([np.array([3, 1])], [np.array([1, 3])]),
    "texts": (["a", "b"], ["b", "a"]),
    "pairs": ([(3, "a"), (1, "b")], [(3, "b"), (1, "a")]),
    "batches of pairs": ([[(3, 0)], [(1, 0)]], [[(1, 0)], [(3, 0)]]),
    "floats": ([0.5, 0.25], [0.25, 0.5]),
    "beyond 64 bits": ([2**70, 1], [1, 2**70]),
    "many": ([str(n) for n in range(9000)], [str(n) for n in range(8999, -1, -1)]),
}


@pytest.mark.parametrize("kind", SAME)
def test_the_same_orders_have_one_number(kind):
    one, other = SAME[kind]
    assert number_of(one) == number_of(other) != 0


@pytest.mark.parametrize("kind", OTHER)
def test_other_orders_have_another_number(kind):
    one, other = OTHER[kind]
    assert number_of(one) != number_of(other)
    assert number_of(one) == number_of(one)


def test_what_is_left_of_an_order_is_another_one():
    assert number_of([3, 1, 2], 0) != number_of([3, 1, 2], 1)


def test_numbers_of_samples_are_read_at_once(monkeypatch):
    def slowly(item):
        raise AssertionError(item)

    monkeypatch.setattr(orders, "numbers_of", slowly)
    for items in (list(range(9)), [[1], [2, 3]], list(np.arange(3)), [torch.arange(3)]):
        assert number_of(items)
        assert all(isinstance(part, array) for part in orders._as_numbers(items))
