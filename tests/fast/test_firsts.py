"""First products are written where they may be, and added everywhere else."""

from __future__ import annotations

import pytest
import torch

from instep.fast import operators
from instep.fast.operators import Firsts, noting
from instep.fast.slots import Slot, fill, new_slot

GARBAGE = float("nan")


@pytest.fixture
def slot():
    number = new_slot()
    gradient = torch.full((3, 4), GARBAGE)
    fill(number, Slot(gradient, lambda: None))
    yield number, gradient
    fill(number, None)


def product(number, factor=1.0):
    rows, columns = torch.full((2, 3), factor), torch.ones(2, 4)
    operators.add_product(number, rows, columns)


def test_the_first_product_is_written_and_the_second_added(slot):
    number, gradient = slot
    firsts = Firsts(writes=True)
    with noting(firsts):
        product(number)
        product(number, 10.0)
    assert firsts.written == firsts.touched == {number}
    assert gradient.tolist() == [[22.0] * 4] * 3


def test_a_product_is_added_where_something_was_before(slot):
    number, gradient = slot
    gradient.zero_()
    firsts = Firsts(writes=True)
    with noting(firsts):
        operators.embedding_backward(torch.ones(1, 4), torch.tensor([1]), -1, number)
        product(number)
    assert firsts.written == set()
    assert gradient.tolist() == [[2.0] * 4, [3.0] * 4, [2.0] * 4]


def test_and_where_another_recording_has_added(slot):
    number, gradient = slot
    gradient.fill_(1.0)
    firsts = Firsts(writes=True, without={number})
    with noting(firsts):
        product(number)
    assert firsts.written == set()
    assert firsts.touched == {number}
    assert gradient.tolist() == [[3.0] * 4] * 3


def test_those_who_only_note_write_nothing(slot):
    number, gradient = slot
    gradient.fill_(1.0)
    firsts = Firsts()
    with noting(firsts):
        product(number)
    product(number)
    assert firsts.written == set()
    assert firsts.touched == {number}
    assert gradient.tolist() == [[5.0] * 4] * 3
