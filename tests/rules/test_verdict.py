from __future__ import annotations

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.rules.registry import rulebook
from instep.rules.verdict import EXPLAINS, judge_all
from instep.rules.view import View
from instep.trace import Created, Trace
from tests.rules.loops import backward, found, gated, plain, step, zero
from tests.trace.strategies import events

LATE = gated(3, batches=5, steps_at=lambda i, n: i % 3 == 0)


def codes(events, wanted=None):
    return [finding.code for finding in judge_all(View(Trace(events)), wanted)]


def test_a_right_loop_is_clean():
    assert codes(plain([zero(), backward(), step()])) == []


def test_off_by_one_window_before_leftover_window():
    assert found("INS202", LATE)
    assert codes(LATE) == ["INS204"]


def test_what_is_ignored_still_explains():
    assert codes(LATE, {"INS202"}) == []
    assert codes(LATE, {"INS204"}) == ["INS204"]
    assert codes(gated(), {"INS202"}) == ["INS202"]
    assert codes(gated(), set()) == []


def test_cleared_before_step_before_cleared_twice():
    events = plain([backward(), zero(), step(), zero(line=20)])
    assert found("INS106", events)
    assert codes(events) == ["INS102"]


def test_cleared_before_step_before_leftover_window():
    events = gated(clears_at_start=False, clears_after_step=False, after_backward=[zero()])
    assert found("INS202", events)
    assert codes(map(copy, events)) == ["INS102"]


def test_wrong_optimizer_cleared_before_cleared_twice():
    body = [zero("a"), backward("a"), step("a"), zero("a", line=20), backward("b"), step("b")]
    made = [Created(id_, "optimizer", {"models": (id_,), "written": True}) for id_ in "ab"]
    events = [*made, *plain(body)]
    assert found("INS106", events)
    assert codes(events) == ["INS105"]


def test_two_causes_are_two_findings_in_the_order_of_the_source():
    assert codes(gated(factor=1.0)) == ["INS201", "INS202"]


def test_the_table_names_rules_of_the_book():
    known = set(rulebook())
    assert EXPLAINS.keys() <= known
    assert all(explained <= known for explained in EXPLAINS.values())
    assert all(explained.isdisjoint(EXPLAINS) for explained in EXPLAINS.values())


@given(st.lists(events, max_size=30))
def test_no_trace_breaks_a_rule(events):
    for finding in judge_all(View(Trace(events))):
        assert finding.message.endswith(".")
        assert finding.severity <= rulebook()[finding.code].SEVERITY


def flushed(every, batches, *, clears_at_start):
    """Accumulate rightly: the last batch closes its window, which has its own divisor."""
    made = gated(
        every,
        batches=batches,
        steps_at=lambda i, n: (i + 1) % every == 0 or i + 1 == n,
        clears_at_start=clears_at_start,
    )
    index = 0
    for event in made:
        if event.kind == "drawn":
            index = event.index
        if event.kind == "backward":
            yield backward(factor=1 / min(every, batches - index // every * every))
        else:
            yield copy(event)


SHAPES = [(every, batches) for every in (2, 3, 4, 5) for batches in range(2, 15)]


@pytest.mark.parametrize("clears_at_start", [True, False])
@pytest.mark.parametrize(("every", "batches"), SHAPES)
def test_windows_of_every_shape(every, batches, clears_at_start):
    right = flushed(every, batches, clears_at_start=clears_at_start)
    assert codes(right) == []

    runs_on = gated(every, batches=batches, clears_at_start=False, runs_on=True)
    assert codes(map(copy, runs_on)) == []

    unflushed = gated(every, batches=batches, clears_at_start=clears_at_start)
    is_left = batches > every and batches % every
    assert codes(map(copy, unflushed)) == (["INS202"] if is_left else [])

    early = gated(
        every,
        batches=batches,
        clears_at_start=clears_at_start,
        steps_at=lambda i, n: i % every == 0,
    )
    if batches > every + 1:
        assert codes(map(copy, early)) == ["INS204"]
