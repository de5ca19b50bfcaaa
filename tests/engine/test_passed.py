"""Numbers of a stream: the same for the same items, another one for others or another order."""

from __future__ import annotations

import pickle
import weakref
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from instep.engine.dealt import Listener
from instep.engine.passed import Passed, numbers_of


def passed_over(items, *, first=0, step=2):
    passed = Passed(0, 2)
    passed.begin()
    kept = list(passed.over(items, first, step))
    return passed, kept


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(0, 4), st.integers(1, 4))
def test_each_rank_keeps_its_own_and_all_see_the_same(items, first, step):
    passed, kept = passed_over(items, first=first, step=step)
    assert kept == items[first::step]
    other, _ = passed_over(items, first=0, step=step)
    assert passed.end() == other.end()
    assert passed.levels() == other.levels()
    assert passed.end().items == len(items)
    assert len(passed.levels()) == len(items).bit_length()


def test_a_name_that_is_on_all_items_is_none():
    assert passed_over(["train"] * 8)[0].end().numbers.names == 0
    assert passed_over(["train"] * 7 + ["test"])[0].end().numbers.names != 0


@given(st.permutations(range(6)))
def test_another_order_is_another_number_of_the_same_bag(order):
    one, other = passed_over(range(6))[0].end(), passed_over(order)[0].end()
    assert one.bag == other.bag
    assert (one.numbers == other.numbers) == (list(order) == list(range(6)))


class Pair(NamedTuple):
    image: torch.Tensor
    label: int


IMAGE = torch.rand(3, 9, 9)
NAMED = [
    (3, 4),
    ("cat", "dog"),
    (b"cat", b"dog"),
    (torch.tensor(3), torch.tensor(4)),
    (torch.tensor([3]), torch.tensor([4])),
    (torch.tensor(False), torch.tensor(True)),
    (np.int64(3), np.int64(4)),
    ([1, [2, 3]], [1, [2, 4]]),
    ({"a": 1}, {"a": 2}),
    (Pair(IMAGE, 1), Pair(IMAGE, 2)),
]


@pytest.mark.parametrize(("one", "other"), NAMED)
def test_what_names_a_sample(one, other):
    assert numbers_of(one) == numbers_of(one)
    assert numbers_of(one).names
    assert numbers_of(one).names != numbers_of(other).names
    assert numbers_of(one).looks != numbers_of(other).looks


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (IMAGE, IMAGE + 1),
        (IMAGE, IMAGE[:, 1:]),
        (IMAGE.permute(2, 0, 1), IMAGE.permute(2, 0, 1) + 1),
        (torch.rand(40, 50, 60).permute(2, 0, 1), torch.rand(40, 50, 60).permute(2, 0, 1)),
        (torch.rand(5000), torch.rand(5000)),
        (torch.tensor([0.5, 1.0]), torch.tensor([0.5, 2.0])),
        (torch.tensor([1, 2]).bfloat16(), torch.tensor([1, 3]).bfloat16()),
        (torch.arange(9), torch.arange(1, 10)),
        (np.array([1.0, 2.0]), np.array([1.0, 3.0])),
        (0.5, 0.6),
        (list(range(9)), list(range(1, 10))),
        ("a" * 100, "b" * 100),
        (b"a" * 100, b"b" * 100),
        (IMAGE.numpy(), IMAGE.numpy() + 1),
    ],
)
def test_what_may_be_changed_on_the_way(one, other):
    assert numbers_of((one, 7)).names == numbers_of((other, 7)).names
    assert numbers_of((one, 7)).looks != numbers_of((other, 7)).looks
    assert numbers_of(one).names == 0


@pytest.mark.parametrize(
    "item",
    [
        object(),
        None,
        {1, 2},
        np.array([object()]),
        np.array(["a"]),
        np.array(7, dtype="datetime64[s]"),
        torch.eye(3).to_sparse(),
        torch.rand(2, 2, dtype=torch.complex64).conj(),
        torch.empty(0),
        torch.empty(3, device="meta"),
        np.empty((0, 3)),
        (),
    ],
    ids=lambda item: type(item).__name__,
)
def test_anything_may_come(item):
    assert numbers_of(item) == numbers_of(item)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_may_come():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert numbers_of(nested) == numbers_of(nested)


def test_where_a_file_is_does_not_name_it():
    assert numbers_of("/scratch/0/cat.png") == numbers_of("/scratch/1/cat.png")


def test_one_pass_in_an_epoch_is_looked_at():
    passed = Passed(0, 2)
    assert list(passed.over([1, 2, 3], 0, 2)) == [1, 3]  # nobody has begun
    assert passed.levels() == {}
    passed.begin()
    loop = passed.over([1, 2, 3], 0, 2)
    assert list(passed.over([7, 8, 9], 1, 2)) == [8]
    assert passed.end() is None
    assert list(loop) == [1, 3]
    assert passed.end() == passed_over([1, 2, 3])[0].end()
    passed.begin()
    # Of the epoch before nothing is left.
    assert passed.end() is None
    assert passed.levels() == {}


def test_epochs_are_told_apart_for_ever():
    passed = Passed(0, 2)
    for _ in range(300):
        passed.begin()
        assert passed.epoch
        list(passed.over([1, 2], 0, 2))
        assert passed.end() is not None


def test_of_the_epoch_before_there_is_something_to_say():
    passed, _ = passed_over([1, 2, 3])
    first, said = passed.epoch, (passed.levels(), passed.end())
    assert passed.seen(first) == said
    passed.begin()
    list(passed.over([1, 2], 0, 2))
    assert passed.seen(first) == said
    assert passed.seen(passed.epoch)[1].items == 2
    passed.begin()
    assert passed.seen(first) == passed.seen(0) == ({}, None)


def test_nobody_looks_while_it_rests():
    passed = Passed(0, 2)
    passed.rest()
    passed.begin()
    assert list(passed.over([1, 2, 3], 0, 2)) == [1, 3]
    assert passed.epoch == 0
    passed.wake()
    passed.begin()
    list(passed.over([1, 2, 3], 0, 2))
    assert passed.end().items == 3


def test_a_look_into_the_loader_besides_begins_nothing():
    passed, listener = Passed(0, 2), Listener(2)
    passed.begin()
    passed.held_by = weakref.ref(listener)
    before = passed.epoch
    passed.begin()
    assert passed.epoch == before
    with listener:  # the loop itself begins again
        passed.begin()
    assert passed.epoch != before
    listener.is_open = False
    passed.begin()
    assert passed.epoch == before + 2


def test_workers_have_a_copy():
    passed, listener = Passed(0, 2), Listener(2)
    passed.held_by = weakref.ref(listener)
    assert pickle.loads(pickle.dumps(passed)).held_by is None
