"""Pieces of captured windows: what a graph reads is what the plan would have cut."""

from __future__ import annotations

import pytest
import torch

import instep
from instep.engine.sources import Copied, Pieces, RowsOf, Taken, source_of
from instep.splits.plan import Piece


def batch_of(samples):
    return {"x": torch.randn(samples, 3), "y": (torch.arange(samples), torch.rand(samples, 2, 2))}


def same(one, other):
    pairs = ((one["x"], other["x"]), *zip(one["y"], other["y"], strict=True))
    return all(torch.equal(a, b) for a, b in pairs)


def plan_of(batch, size):
    return instep.Micro(size).plan(batch, [])


def replayed(source, inputs, *given):
    """Do what a replay does."""
    for place, one in enumerate(given):
        inputs.put(source.handed(one), place)
    found = [inputs.take(place) for place in range(len(given))]
    inputs.advance()
    return found if len(found) > 1 else found[0]


@pytest.mark.parametrize("sizes", [(8, 8), (8, 6), (6, 8)], ids=str)
def test_rows_are_those_of_the_plan_in_every_window(sizes):
    batch = batch_of(8)
    plan = plan_of(batch, 2)
    source = RowsOf(plan, batch, "f")
    inputs = source.inputs(plan.slices[0], 1)
    for samples in sizes:
        batch = batch_of(samples)
        plan = plan_of(batch, 2)
        source = RowsOf(plan, batch, "f")
        inputs.begin(source.batch)
        for given in source:
            assert same(replayed(source, inputs, given), source.piece(given).value)
            assert source.items(given) == 2


def test_rows_that_are_not_the_next_ones_are_found():
    batch = batch_of(8)
    plan = plan_of(batch, 2)
    source = RowsOf(plan, batch, "f")
    inputs = source.inputs(plan.slices[0], 1)
    inputs.begin(batch)
    for index in (3, 0, 1, 3, 3):
        given = plan.slices[index]
        assert same(replayed(source, inputs, given), source.piece(given).value)


def test_recordings_fit_by_shape_and_not_by_the_number_of_samples():
    def key(samples, size, function="f", width=3):
        batch = (torch.ones(samples, width), torch.ones(samples))
        plan = plan_of(batch, size)
        return RowsOf(plan, batch, function).key(plan.slices[0])

    assert key(8, 2) == key(6, 2)
    assert key(8, 2) != key(8, 4)
    assert key(8, 2) != key(9, 2)
    assert key(8, 2) != key(8, 2, "g")
    assert key(8, 2) != key(8, 2, width=4)
    listed = [torch.ones(8, 3), torch.ones(8)]
    assert RowsOf(plan_of(listed, 2), listed, "f").key(slice(0, 2)) != key(8, 2)


def test_pieces_are_copied():
    pieces = [Piece(batch_of(2), 2) for _ in range(3)]
    inputs = Copied(pieces[0].value)
    for piece in pieces:
        inputs.put(piece.value, 0)
        assert same(inputs.take(0), piece.value)


def test_a_batch_on_the_host_is_neither_rows_nor_recorded():
    batch = batch_of(4)
    source = source_of(plan_of(batch, 2), "f")
    assert isinstance(source, Pieces)
    assert all(source.key(given) is None for given in source)


def test_room_is_zero_where_a_batch_is_smaller():
    inputs = Taken(torch.ones(3, 2), 4, 2)
    inputs.begin(torch.full((3, 2), 5.0))
    inputs.put(2, 0)
    assert inputs.take(0).tolist() == [[5.0, 5.0], [0.0, 0.0]]


def test_rows_side_by_side():
    batch = batch_of(12)
    plan = plan_of(batch, 2)
    source = RowsOf(plan, batch, "f")
    inputs = source.inputs(plan.slices[0], 3)
    for _ in range(2):
        inputs.begin(batch)
        for at in (0, 3):
            given = plan.slices[at : at + 3]
            for found, one in zip(replayed(source, inputs, *given), given, strict=True):
                assert same(found, source.piece(one).value)


def test_pieces_side_by_side_are_copied_apart():
    pieces = [Piece(batch_of(2), 2) for _ in range(2)]
    inputs = Copied(pieces[0].value, 2)
    for place, piece in enumerate(pieces):
        inputs.put(piece.value, place)
    for place, piece in enumerate(pieces):
        assert same(inputs.take(place), piece.value)
