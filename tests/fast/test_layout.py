"""Flat layouts: every parameter at a place of its own, every block with one owner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.fast.layout import BLOCK, Layout


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=12))
def test_parameters_begin_at_blocks_of_their_own(sizes):
    layout = Layout.of(sizes)
    assert layout.length == BLOCK * len(layout.owners)
    for index, (offset, size) in enumerate(zip(layout.offsets, sizes, strict=True)):
        assert offset % BLOCK == 0
        blocks = range(offset // BLOCK, -(-(offset + size) // BLOCK))
        assert all(layout.owners[block] == index for block in blocks)
    assert sorted(layout.owners) == list(layout.owners)
