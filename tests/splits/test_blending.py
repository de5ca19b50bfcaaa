"""Windows that overlap: all of them inside, everything covered, weights that sum to one."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.splits.blending import reads, scale_of, windows


@st.composite
def axes(draw):
    patch = draw(st.integers(1, 24))
    return draw(st.integers(1, 90)), patch, draw(st.integers(0, patch - 1))


@given(axes(), st.sampled_from([1, 2, 3, 4]))
def test_windows_cover_the_axis_and_have_one_size(axis, align):
    length, patch, overlap = axis
    found = reads(length, patch, overlap, align)
    assert found[0][0] == 0
    assert found[-1][1] == length
    assert all(start % align == 0 for start, _ in found)
    assert all(b[0] > a[0] for a, b in itertools.pairwise(found))
    if length > patch:
        assert all(end - start == patch for start, end in found[:-1])
        assert patch <= found[-1][1] - found[-1][0] < patch + align
    if align == 1:
        # A gap would leave pixels that no window sees; a smaller overlap was not asked for.
        assert all(a[1] - b[0] >= overlap for a, b in itertools.pairwise(found))


@given(
    axes(),
    st.sampled_from([Fraction(1), Fraction(2), Fraction(4), Fraction(1, 2), Fraction(1, 4)]),
    st.sampled_from(["linear", "gaussian"]),
)
def test_weights_are_positive_and_sum_to_one_everywhere(axis, scale, blend):
    length, patch, overlap = axis
    patch *= scale.denominator
    length = max(length, scale.denominator)
    overlap = overlap * scale.denominator
    found = windows(reads(length, patch, overlap, scale.denominator), scale, overlap, blend)
    total = [0.0] * int(scale * length)
    for window in found:
        assert len(window.weights) == window.placed[1] - window.placed[0]
        for index, weight in enumerate(window.weights, window.placed[0]):
            assert weight > 0
            total[index] += weight
    assert total == pytest.approx([1.0] * len(total), abs=1e-12)


def test_a_linear_blend_goes_from_one_window_to_the_next_in_even_steps():
    first, second = windows([(0, 8), (4, 12)], Fraction(1), 4, "linear")
    assert first.weights == pytest.approx((1, 1, 1, 1, 0.875, 0.625, 0.375, 0.125))
    assert second.weights == tuple(reversed(first.weights))


def test_a_gaussian_blend_trusts_the_middle_of_a_window():
    first, _ = windows([(0, 8), (4, 12)], Fraction(1), 4, "gaussian")
    assert first.weights[:4] == (1, 1, 1, 1)
    assert list(first.weights) == sorted(first.weights, reverse=True)
    # 3.5 of 8 pixels from the middle against 0.5, at a standard deviation of 1 pixel.
    mine, other = math.exp(-(3.5**2) / 2), math.exp(-(0.5**2) / 2)
    assert first.weights[7] == pytest.approx(mine / (mine + other))


@pytest.mark.parametrize(
    ("made", "read", "scale"),
    [(32, 32, 1), (128, 32, 4), (8, 32, Fraction(1, 4)), (28, 32, None), (48, 32, None)],
)
def test_only_multiples_and_fractions_have_a_certain_place(made, read, scale):
    assert scale_of(made, read) == scale
