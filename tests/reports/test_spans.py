from dataclasses import replace

import pytest

from instep.reports.record import Owner, Record
from instep.reports.spans import spans
from instep.trace import Backward, Opaque, Step, Zero
from tests.reports.jobs import long, small


def test_windows_end_with_their_steps():
    first, second = spans(small())
    assert (first.number, first.backwards, first.skipped) == (1, 2, None)
    assert (second.number, second.backwards, second.skipped) == (2, 2, "nonfinite")
    assert first.begin == pytest.approx(0.1)  # nothing came before the first backward
    assert first.end == pytest.approx(0.5)
    assert second.begin == pytest.approx(0.6)  # the clear before its first backward
    assert second.end == pytest.approx(1.0)


def test_a_step_without_a_backward_is_an_empty_window():
    record = Record(title="", optimizers=(Owner("o", updates=1),), events=(Step("o"),))
    (only,) = spans(replace(record, first=((2.0, 0),)))
    assert (only.begin, only.end, only.backwards) == (2.0, 2.0, 0)


def test_one_backward_may_be_in_the_windows_of_several():
    events = (Backward(("a", "b")), Step("a"), Step("b"), Backward(None), Opaque(None, "x"))
    moments = ((0.1, 4), (0.2, 0), (0.3, 1), (0.4, 3), (0.5, 0), (0.6, 2))
    found = spans(Record(title="", events=events, first=moments))
    assert [(each.optimizer, each.backwards, each.begin) for each in found] == [
        ("a", 1, 0.1),
        ("b", 2, 0.1),
    ]


def test_numbers_after_what_was_left_out_count_from_the_end():
    record = long()
    found = spans(record)
    assert found[0].number == 1
    assert found[-1].number == record.optimizers[0].updates
    numbers = [each.number for each in found]
    assert numbers == sorted(set(numbers))
    assert max(each.end - each.begin for each in found) < 1.0


def test_no_window_is_followed_across_what_was_left_out():
    events = (Backward(("o",)), Step("o"), Zero(("o",)))
    record = Record(
        title="",
        optimizers=(Owner("o", updates=9),),
        events=events,
        first=((0.1, 0),),
        latest=((9.0, 2), (9.1, 0), (9.2, 1)),
    )
    assert [(s.number, s.begin) for s in spans(record)] == [(1, 0.1)]
    assert [(s.number, s.begin) for s in spans(replace(record, left_out=5))] == [(9, 9.0)]


def test_a_step_that_raised_closes_no_window():
    events = (Backward(("o",)), Step("o", skipped="exception"), Step("o"))
    moments = ((0.1, 0), (0.2, 1), (0.3, 0), (0.4, 2))
    record = Record(title="", optimizers=(Owner("o", updates=1),), events=events, first=moments)
    assert [(each.number, each.backwards, each.begin) for each in spans(record)] == [(1, 1, 0.2)]
