import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.trace import TraceFormatError
from instep.trace.header import VERSION, Header
from tests.trace.strategies import facts, text

headers = st.builds(
    Header,
    limit=st.none() | st.integers(1, 9),
    dropped=st.dictionaries(text, st.integers(1, 9), max_size=3),
    facts=st.dictionaries(text, facts, max_size=3),
)


@given(headers)
def test_a_header_comes_back_exactly(header):
    again = Header.decode(json.loads(json.dumps(header.encode(), allow_nan=False)))
    assert again == header
    assert repr(again) == repr(header)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "step"}, "does not start with a header"),
        ({"limit": 0}, "limit cannot be 0"),
        ({"limit": True}, "limit cannot be True"),
        ({"dropped": {"step": "2"}}, "what it dropped"),
        ({"facts": []}, "its facts are not a dict"),
        ({"facts": {"model": 3}}, "facts cannot be 3"),
    ],
)
def test_what_is_no_header_is_refused_with_the_reason(change, why):
    with pytest.raises(TraceFormatError, match=why):
        Header.decode(Header(None, {}, {}).encode() | change)


def test_another_version_is_refused():
    with pytest.raises(TraceFormatError, match=f"version {VERSION + 1}; this instep reads"):
        Header.decode(Header(None, {}, {}).encode() | {"version": VERSION + 1})
