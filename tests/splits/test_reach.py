"""Cuts, in whole numbers: every output pixel once, and every tile reads enough."""

from __future__ import annotations

import itertools
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from instep.splits.reach import Axis, Reach, halo, smallest_proof, spans


@st.composite
def axes(draw):
    align = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    length = draw(st.integers(1, 300))
    reaches, lengths = [], []
    for _ in range(draw(st.integers(1, 3))):
        scale = draw(st.sampled_from([Fraction(1), Fraction(2), Fraction(4), Fraction(1, align)]))
        reaches.append(Reach(scale, draw(st.integers(0, 40)), draw(st.integers(0, 40))))
        lengths.append(max(1, int(scale * length) - draw(st.integers(0, 5))))
    return Axis(length, align, tuple(reaches), tuple(lengths))


@given(axes(), st.integers(1, 200), st.integers(0, 30))
def test_every_pixel_belongs_to_one_tile_and_every_tile_reads_enough(axis, patch, least):
    cut = spans(axis, patch, least)
    assert cut[0].core[0] == cut[0].read[0] == 0
    assert cut[-1].core[1] == cut[-1].read[1] == axis.length
    for before, after in itertools.pairwise(cut):
        assert before.core[1] == after.core[0]
        assert after.core[0] % axis.align == after.read[0] % axis.align == 0
    for index, (reach, length) in enumerate(zip(axis.reaches, axis.lengths, strict=True)):
        covered = [pixel for span in cut for pixel in range(*span.outputs[index])]
        assert covered == list(range(length))
        for span in cut:
            (o0, o1), (a, b) = span.outputs[index], span.read
            assert a == 0 or o0 >= reach.scale * a + reach.left
            assert b == axis.length or o1 <= reach.scale * b - reach.right
            assert span.crops[index] == (o0 - reach.scale * a, o1 - reach.scale * a)
            assert a <= span.core[0]
            assert b >= span.core[1]


@given(axes())
def test_three_cores_of_the_proof_have_cuts_inside(axis):
    core = smallest_proof(axis)
    lengths = tuple(int(reach.scale * 3 * core) for reach in axis.reaches)
    first, *_, last = spans(Axis(3 * core, axis.align, axis.reaches, lengths), core)
    assert last.read[0] > 0
    assert first.read[1] < 3 * core
    left, right = halo(axis)
    assert left % axis.align == right % axis.align == 0
