import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.trace import KINDS, Backward, Created, Step, Trace, TraceFormatError, Zero
from tests.trace.strategies import event_lists

limits = st.none() | st.integers(1, 10)


def test_events_come_back_in_order():
    trace = Trace()
    trace.record(Zero(("o",)))
    trace.record(Step("o"))
    assert list(trace) == [Zero(("o",)), Step("o")]
    assert (len(trace), trace.total, trace.limit) == (2, 2, None)
    assert repr(trace) == "Trace(2 events)"


@given(event_lists, st.integers(1, 10))
def test_a_bounded_trace_keeps_the_newest_and_counts_the_rest(events, limit):
    trace = Trace(events, limit=limit)
    gone = events[: max(0, len(events) - limit)]
    assert list(trace) == events[len(gone) :]
    assert trace.dropped == Counter(event.kind for event in gone)
    assert trace.total == len(events)


def test_a_limit_must_hold_something():
    with pytest.raises(ValueError, match="at least 1"):
        Trace(limit=0)


@given(event_lists)
def test_of_selects_by_class_and_by_name(events):
    trace = Trace(events)
    for kind, cls in KINDS.items():
        assert trace.of(cls) == trace.of(kind) == tuple(e for e in events if e.kind == kind)


def test_of_lists_the_kinds_when_asked_for_another():
    with pytest.raises(ValueError, match=r"no kind 'stepp'; there are .*backward.*step"):
        Trace().of("stepp")


def test_facts_outlive_the_event_that_brought_them():
    trace = Trace(limit=1)
    trace.record(Created("net", "model", {"batchnorm": True}))
    trace.record(Step("o"))
    assert trace.facts == {"net": {"role": "model", "batchnorm": True}}
    assert Trace.from_json(trace.to_json()).facts == trace.facts


def test_facts_are_those_of_the_newest_creation():
    trace = Trace([Created("o", "optimizer", {"lr": 1}), Created("o", "optimizer", {"lr": 2})])
    assert trace.facts["o"] == {"role": "optimizer", "lr": 2}


@given(event_lists, limits)
def test_json_comes_back_exactly(events, limit):
    trace = Trace(events, limit=limit)
    again = Trace.from_json(json.loads(json.dumps(trace.to_json(), allow_nan=False)))
    assert again == trace
    assert list(map(repr, again)) == list(map(repr, trace))
    assert again.to_json() == trace.to_json()


@pytest.mark.parametrize("data", [[], {}, None, "trace", [{}], [{"kind": "step"}]])
def test_what_is_no_trace_is_refused(data):
    with pytest.raises(TraceFormatError, match="not a trace"):
        Trace.from_json(data)


def test_a_recursion_bomb_is_refused():
    bomb = []
    for _ in range(100_000):
        bomb = [bomb]
    with pytest.raises(TraceFormatError, match="nested too deeply"):
        Trace.from_json([*Trace().to_json(), {"kind": "step", "optimizer": bomb}])


def test_traces_differ_by_what_they_hold():
    assert Trace([Step("o")]) == Trace([Step("o")])
    assert Trace([Step("o")]) != Trace([Backward(("o",))])
    assert Trace([Step("o")]) != Trace([Step("o")], limit=9)
    assert Trace() != []
