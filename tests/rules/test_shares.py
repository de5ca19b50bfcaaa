from __future__ import annotations

import pytest

from instep.rules.shares import accumulated, divides_as_well, divides_more
from instep.rules.view import View
from instep.trace import Trace
from tests.rules.loops import backward, gated, plain, step, zero


def view(events):
    return View(Trace(events))


BEFORE = gated(4, batches=8, factor=1.0)
RIGHT = gated(4, batches=8, factor=1 / 4)
UNKNOWN = [
    event if event.kind != "backward" else backward(factor=None)
    for event in gated(4, batches=8, factor=1.0)
]


@pytest.mark.parametrize(
    ("after", "more", "as_well"),
    [
        (RIGHT, True, True),
        (gated(4, batches=8, factor=1 / 8), False, True),
        (BEFORE, False, True),
        (UNKNOWN, False, False),
        (plain([zero(), backward(), step()]), False, True),
    ],
)
def test_what_a_fix_must_leave(after, more, as_well):
    assert divides_more([view(BEFORE)], [view(after)]) is more
    assert divides_as_well([view(BEFORE)], [view(after)]) is as_well


def test_what_was_right_stays_right():
    assert divides_as_well([view(RIGHT)], [view(RIGHT)])
    assert not divides_as_well([view(RIGHT)], [view(gated(4, batches=8, factor=1 / 8))])


def test_only_updates_of_several_count():
    assert len(list(accumulated(view(BEFORE)))) == 4
    assert list(accumulated(view(plain([zero(), backward(), step()])))) == []
