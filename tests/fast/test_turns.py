"""Turns at slots: whoever adds waits for those before, and marks where it was."""

from __future__ import annotations

import pytest
import torch

from instep.fast import operators
from instep.fast.operators import taking
from instep.fast.slots import NOWHERE, Slot, fill, new_slot
from instep.fast.turns import Turns


@pytest.fixture
def said():
    return []


@pytest.fixture
def turns(said):
    class Mark:
        made = 0

        def __init__(self):
            self.number = Mark.made
            Mark.made += 1

        def record(self):
            said.append(("done", self.number))

        def wait(self):
            said.append(("wait", self.number))

    return Turns(Mark)


def slot_of(*shape):
    number = new_slot()
    gradient = torch.zeros(shape)
    fill(number, Slot(gradient, lambda: None))
    return number, gradient


def linear(turns, said, weight, bias, label):
    with taking(turns):
        said.append(label)
        rows, columns = torch.ones(2, 3), torch.ones(2, 4)
        operators.linear_backward(rows, columns, torch.zeros(3, 4), weight, bias, False)


def test_branches_wait_at_every_slot_for_the_one_before(turns, said):
    weight, sums = slot_of(3, 4)
    bias, biases = slot_of(3)
    linear(turns, said, weight, bias, "first")
    linear(turns, said, weight, bias, "second")
    assert said == [
        "first",
        ("done", 0),
        ("done", 1),
        "second",
        ("wait", 0),
        ("done", 2),
        ("wait", 1),
        ("done", 3),
    ]
    assert torch.equal(sums, torch.full((3, 4), 4.0))
    assert torch.equal(biases, torch.full((3,), 4.0))


def test_convolutions_and_embeddings_take_turns_as_well(turns, said):
    weight, _ = slot_of(2, 1, 3)
    words, sums = slot_of(5, 2)
    for _ in range(2):
        with taking(turns):
            x, narrow = torch.ones(1, 1, 4), torch.ones(2, 1, 3)
            operators.convolution_backward(
                torch.ones(1, 2, 2), x, narrow, weight, -1, [1], [0], [1], 1, False
            )
            operators.embedding_backward(torch.ones(3, 2), torch.tensor([0, 4, 4]), -1, words)
    assert said == [
        ("done", 0),
        ("done", 1),
        ("wait", 0),
        ("done", 2),
        ("wait", 1),
        ("done", 3),
    ]
    assert sums[4].tolist() == [4.0, 4.0]


def test_nobody_waits_elsewhere(turns, said):
    weight, _ = slot_of(3, 4)
    with taking(turns):
        pass
    operators.linear_backward(
        torch.ones(2, 3), torch.ones(2, 4), torch.zeros(3, 4), weight, NOWHERE, False
    )
    assert said == []
