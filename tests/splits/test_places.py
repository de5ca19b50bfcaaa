"""Choices of places, counted: every number below a total is tried."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from instep.splits.places import Ballot, Layout, blocks, reflected


@st.composite
def layouts(draw):
    axes = draw(st.integers(1, 3))
    align = [draw(st.integers(1, 3)) for _ in range(axes)]
    patch = [a * draw(st.integers(1, 4)) for a in align]
    # Images of whole multiples, as every array of a sample has whole pixels at its end.
    sizes = [a * draw(st.integers(1, 8)) for a in align]
    return Layout(tuple(sizes), tuple(patch), tuple(align))


@given(layouts())
def test_every_position_has_one_number_and_lies_inside(layout):
    found = [layout.position(number) for number in range(layout.positions)]
    assert len(set(found)) == len(found)
    for start in found:
        for axis, at in enumerate(start):
            assert at % layout.align[axis] == 0
            assert 0 <= at <= max(layout.sizes[axis] - layout.patch[axis], 0)
    expected = 1
    for n, size, align in zip(layout.sizes, layout.patch, layout.align, strict=True):
        expected *= len([a for a in range(0, n, align) if a == 0 or a + size <= n])
    assert len(found) == expected


@given(layouts(), st.data())
def test_a_patch_around_a_pixel_holds_it_and_is_a_position(layout, data):
    pixel = [data.draw(st.integers(0, n - 1)) for n in layout.sizes]
    start = layout.around(pixel)
    assert start in {layout.position(number) for number in range(layout.positions)}
    for axis, at in enumerate(pixel):
        size, align = layout.patch[axis], layout.align[axis]
        assert start[axis] <= at < start[axis] + size
        is_free = 0 < start[axis] < (layout.counts[axis] - 1) * align
        if is_free:
            assert abs(at - (start[axis] + size // 2)) <= align


@given(st.lists(st.integers(0, 5), min_size=1).filter(any))
def test_entries_have_as_many_numbers_as_weight(weights):
    ballot = Ballot.of(weights)
    drawn = [ballot.at(number) for number in range(sum(weights))]
    assert Counter(entry for entry, _ in drawn) == {k: w for k, w in enumerate(weights) if w}
    # And no two numbers are the same place in an entry.
    assert len(set(drawn)) == len(drawn)


@given(st.lists(st.floats(0, 1e6), min_size=1).filter(any), st.floats(0, 1))
def test_nothing_without_weight_is_drawn(weights, share):
    ballot = Ballot.of(weights)
    entry, _ = ballot.at(share * ballot.total)
    assert weights[entry] > 0


@given(st.lists(st.integers(1, 700), min_size=1, max_size=2))
def test_blocks_cover_a_map_once(sizes):
    seen = Counter()
    for block in blocks(sizes):
        pixels = 1
        for part in block:
            pixels *= part.stop - part.start
        assert 0 < pixels <= 65536
        seen[tuple((part.start, part.stop) for part in block)] += pixels
    total = 1
    for n in sizes:
        total *= n
    assert sum(seen.values()) == total


@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 20))
def test_images_are_continued_as_numpy_does(length, before, after):
    import numpy as np

    line = np.arange(length)
    for pad, mode in (("reflect", "reflect"), ("edge", "edge")):
        expected = np.pad(line, (before, after), mode=mode)
        assert reflected(length, before, after, pad) == expected.tolist()
