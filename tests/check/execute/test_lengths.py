import pytest

from instep.check.execute.lengths import MOST_EVERY, Lengths


@pytest.mark.parametrize("every", [3, 4, 5, 7, 16, 64])
def test_the_last_window_is_neither_full_nor_single(every):
    lengths = Lengths()
    lengths.need(every)
    assert lengths.length % every > 1
    assert lengths.length > 2 * every


def test_several_gates_fit_one_length():
    lengths = Lengths()
    for every in (3, 4, 5):
        lengths.need(every)
    assert all(lengths.length % every > 1 for every in (3, 4, 5))


def test_a_gate_is_needed_once():
    lengths = Lengths()
    assert lengths.need(8)
    assert not lengths.need(8)
    assert not lengths.need(1)
    assert not lengths.need(MOST_EVERY + 1)


def test_a_long_literal_ends_as_a_short_one():
    lengths = Lengths()
    lengths.need(4)
    assert lengths.like(1000) % 4 == 0
    assert lengths.like(1001) % 4 == 1
    assert lengths.like(6) == 6


def test_the_shift_shows_the_other_parity():
    lengths = Lengths()
    before = lengths.short()
    lengths.shift = 1
    assert lengths.short() == before + 1
