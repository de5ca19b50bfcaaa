from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.engine.arithmetic import (
    Part,
    clip_factor,
    normaliser,
    reference,
    shared_normaliser,
    total,
)

counts = st.one_of(st.integers(0, 10**6), st.floats(0, 1e6))
positive = st.floats(1e-30, 1e30)


@given(positive)
def test_the_reference_is_a_power_of_two_within_a_factor_of_two(count):
    found = reference(count)
    mantissa, _ = math.frexp(found)
    assert mantissa == 0.5
    assert count / 2 <= found <= count * 2


@given(
    st.lists(st.tuples(st.integers(-1000, 1000), st.integers(0, 50), st.booleans()), max_size=20)
)
def test_the_total_is_the_mean_over_all_items(rows):
    """Against exact fractions: the order and the split of the parts make no difference."""
    parts = [Part(float(loss), float(items), 1.0, is_sum) for loss, items, is_sum in rows]
    found = total(parts)
    items = sum(items for _, items, _ in rows)
    summed = sum(loss if is_sum else loss * items for loss, items, is_sum in rows if items)
    assert found.items == items
    if items:
        assert found.loss == pytest.approx(float(Fraction(summed, items)), rel=1e-12, abs=1e-9)
        assert found.weighted == found.loss
    else:
        assert math.isnan(found.loss)
        assert found.weighted == 0.0


@given(st.floats(0, 1e30), st.one_of(st.none(), st.floats(1e-3, 1e3)))
def test_clipping_never_enlarges_and_never_exceeds_the_limit(norm, limit):
    factor = clip_factor(norm, limit)
    assert 0 <= factor <= 1
    if limit is None:
        assert factor == 1
    else:
        assert norm * factor <= limit * (1 + 1e-12)


def test_normalisers_agree_or_there_is_none():
    assert normaliser(4.0, 16.0) == 0.25
    assert normaliser(4.0, 0.0) == 0.0
    assert shared_normaliser([0.5, 0.5 * (1 + 1e-15)]) == 0.5
    assert shared_normaliser([0.5, 0.5 * (1 + 1e-9)]) is None
