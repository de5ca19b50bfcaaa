from __future__ import annotations

import pytest

from instep.rules.patches import are_pieces, is_patches, piecewise
from instep.rules.view import View
from instep.trace import Created, Drawn, Trace
from tests.rules.loops import backward, pieces, step, zero


def view(type_, **facts):
    return View(Trace([Created("piece", "loader", {"type": type_, **facts})]))


PIECE = Drawn("piece", of="loader")


@pytest.mark.parametrize("type_", ["batch", "x.split(8)", "range(accum_steps)", "micro_batches"])
def test_pieces_of_a_batch(type_):
    assert are_pieces(view(type_), PIECE)
    assert not is_patches(view(type_), PIECE)


@pytest.mark.parametrize("type_", ["self.heads", "range(10)", "zip(tasks, targets)", "losses"])
def test_parts_of_a_loss(type_):
    assert not are_pieces(view(type_), PIECE)
    assert are_pieces(view(type_, patches=True), PIECE)


def test_a_number_outside_of_any_batch():
    assert are_pieces(view("range(8)"), Drawn("piece", of="loop"))
    assert not are_pieces(view("range(T)"), Drawn("piece", of="loop"))


def test_steps_per_piece():
    events = pieces(batches=1, each=[zero(), backward(), step()])
    (found,) = piecewise(View(Trace(events)))
    assert found.steps_per_batch == 3
    assert found.backward is not None
    assert found.is_patches
