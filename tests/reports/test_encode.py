import json

import pytest
from hypothesis import given

from instep.reports.encode import dump
from instep.reports.escape import encodable
from tests.reports.kit import raw_controls, texts


def test_controls_and_halves_of_pairs():
    assert dump("\x7f\x9b") == '"\\u007f\\u009b"\n'
    # Half of a surrogate pair: strict parsers refuse the whole document.
    assert dump(["\ud800", {"a": "\udc80"}]) == dump(["\ufffd", {"a": "\ufffd"}])
    assert dump("😀") == '"\\ud83d\\ude00"\n'


def test_the_order_of_keys_is_kept():
    assert list(json.loads(dump({"b": 1, "a": 2}))) == ["b", "a"]


def test_what_is_not_json_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump(float("nan"))


@given(texts)
def test_texts_come_back(text):
    shown = dump({"text": (text,)})
    assert shown.isascii()
    assert raw_controls(shown) <= {"\n"}
    assert json.loads(shown) == {"text": [encodable(text)]}
