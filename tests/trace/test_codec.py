import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.trace import Backward, Created, Drawn, Place, Step, TraceFormatError
from instep.trace.codec import decode, encode
from tests.trace.strategies import events

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "place", "float", "facts", "loader"]), inner)
    ),
    max_leaves=8,
)


def through_json(data):
    return json.loads(json.dumps(data, allow_nan=False))


@given(events)
def test_every_event_comes_back_exactly(event):
    again = decode(through_json(encode(event)))
    assert again == event
    assert repr(again) == repr(event)  # equality alone would take 1 for True and for 1.0


def test_what_is_none_by_default_is_left_out():
    assert encode(Backward(None, items=3, place=Place("a.py", 1))) == {
        "kind": "backward",
        "optimizers": None,
        "items": 3,
        "parts": [],
        "place": {"path": "a.py", "line": 1},
    }


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_come_back(number):
    again = decode(through_json(encode(Step("optimizer", grad_norm=number))))
    assert repr(again.grad_norm) == repr(number)


def test_a_fact_may_have_any_name():
    event = Created("model", "model", {"float": "nan", "facts": (), "path": "x", "kind": 1})
    assert decode(through_json(encode(event))) == event


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "an event is a dict"),
        ({"kind": "os.system"}, "no event of kind 'os.system'"),
        ({"kind": ["step"]}, "no event of kind"),
        ({"kind": "step"}, "Step needs its field 'optimizer'"),
        ({"kind": "step", "optimizer": 3}, "Step.optimizer cannot be 3"),
        ({"kind": "step", "optimizer": "o", "code": ""}, "Step has no field 'code'"),
        ({"kind": "mode", "model": "m", "training": 1}, "Mode.training cannot be 1"),
        ({"kind": "drawn", "loader": "l", "items": True}, "Drawn.items cannot be True"),
        ({"kind": "created", "id": "m", "role": "spy"}, "Created.role cannot be 'spy'"),
        ({"kind": "drawn", "loader": "l", "place": {"path": "a"}}, "Place needs its field 'line'"),
        ({"kind": "created", "id": "m", "role": "model", "facts": {"facts": [1]}}, "a fact is a"),
    ],
)
def test_what_is_no_event_is_refused_with_the_reason(data, why):
    with pytest.raises(TraceFormatError, match=why) as error:
        decode(data)
    assert "why:" in str(error.value)
    assert "fix:" in str(error.value)


@given(junk)
def test_junk_is_an_event_or_an_error_of_ours(data):
    try:
        event = decode(data)
    except TraceFormatError:
        return
    assert decode(encode(event)) == event


def test_numbers_keep_their_type():
    for items in (8, 8.0):
        assert type(decode(through_json(encode(Drawn("loader", items=items)))).items) is type(items)
