"""Deferred weight gradients: the same sums, whichever micro-steps share a product."""

from __future__ import annotations

import pytest
import torch

from instep.fast import operators
from instep.fast.deferral import Call, Stash, Survey, steps_for
from instep.fast.operators import keeping
from instep.fast.slots import NOWHERE, Slot, fill, new_slot


@pytest.fixture
def slots():
    """Two weights, and where their gradients are summed."""
    shapes = [(24, 16), (8, 24)]
    made = {new_slot(): torch.zeros(shape) for shape in shapes}
    for number, gradient in made.items():
        fill(number, Slot(gradient, lambda: None))
    yield made
    for number in made:
        fill(number, None)


def rows_of(slots, step, count=2):
    generator = torch.Generator().manual_seed(step)
    return {
        number: tuple(torch.randn(count, n, generator=generator) for n in gradient.shape)
        for number, gradient in slots.items()
    }


def backward(slots, step):
    for number, (rows, columns) in rows_of(slots, step).items():
        narrow = torch.zeros(rows.shape[1], columns.shape[1])
        operators.linear_backward(rows, columns, narrow, number, NOWHERE, False)


def expected(slots, steps):
    sums = {number: torch.zeros_like(gradient) for number, gradient in slots.items()}
    for step in range(steps):
        for number, (rows, columns) in rows_of(slots, step).items():
            sums[number] += rows.t() @ columns
    return sums


@pytest.mark.parametrize("done", [1, 2, 3])
def test_rounds_and_their_rests_add_what_single_products_add(slots, done):
    stash = Stash(3)
    for step in range(done):
        stash.begin(step)
        with keeping(stash):
            backward(slots, step)
        stash.end()
    if done < 3:
        assert not any(gradient.any() for gradient in slots.values())
        stash.flush(done)
    for number, sum_ in expected(slots, done).items():
        assert torch.allclose(slots[number], sum_, atol=1e-5)


def test_layers_in_another_order_are_refused(slots):
    stash = Stash(2)
    first, second = rows_of(slots, 0).items()
    stash.begin(0)
    assert stash.take(first[0], *first[1])
    assert stash.take(second[0], *second[1])
    stash.end()
    stash.begin(1)
    with pytest.raises(RuntimeError, match="same layers"):
        stash.take(second[0], *second[1])
    stash.begin(1)
    stash.take(first[0], *first[1])
    with pytest.raises(RuntimeError, match="same layers"):
        stash.end()


def test_a_survey_takes_nothing(slots):
    survey = Survey()
    with keeping(survey):
        backward(slots, 0)
    assert survey.calls == [Call(2, 24, 16), Call(2, 8, 24)]
    for number, sum_ in expected(slots, 1).items():
        assert torch.allclose(slots[number], sum_, atol=1e-5)


def test_what_is_worth_deferring():
    gpt = [Call(512, 6144, 2048), Call(512, 2048, 2048), Call(512, 8192, 2048)]
    assert steps_for(gpt, 8) == 4
    assert steps_for(gpt, 3) == 3
    assert steps_for(gpt, 1) == 1
    assert steps_for([c._replace(rows=1024) for c in gpt], 8) == 2
    assert steps_for([c._replace(rows=2048) for c in gpt], 8) == 1
    # The head of a classifier has few rows; what counts is where the weights are.
    assert steps_for([Call(1, 1000, 2048), *gpt], 8) == 4
    # Rows that would take more room than the weights they are for.
    assert steps_for([Call(256, 1024, 1024)] * 4, 8) < 8
    assert steps_for([], 8) == 1


def test_a_layer_with_many_rows_is_multiplied_at_once(slots):
    number = next(iter(slots))
    stash = Stash(2)
    stash.begin(0)
    assert not stash.take(number, torch.ones(1025, 24), torch.ones(1025, 16))
    stash.end()
