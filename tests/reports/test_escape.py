from hypothesis import given

from instep.reports.escape import encodable, visible
from tests.reports.kit import raw_controls, texts


def test_what_is_spelled_out():
    assert visible("plain é 損") == "plain é 損"
    assert visible("\x1b]0;owned\x07") == "\\x1b]0;owned\\x07"
    assert visible("a\nb\r\tc\x85") == "a\\nb\\r\\tc\\x85"
    assert visible("\x7f\u2028\u2029") == "\\x7f\\u2028\\u2029"
    assert visible("\u202e\U000e0001\ud800") == "\\u202e\\U000e0001\\ud800"


@given(texts)
def test_nothing_unsafe_is_left(text):
    assert not raw_controls(visible(text))
    visible(text).encode()
    assert visible(visible(text)) == visible(text)


def test_the_oracle_has_teeth():
    assert raw_controls("\x1b[2J") == {"\x1b"}
    assert raw_controls("a\x9bb\u202e") == {"\x9b", "\u202e"}


@given(texts)
def test_encodable_keeps_columns(text):
    done = encodable(text)
    assert len(done.encode()) == len(text.encode("utf-8", "surrogatepass"))
    assert len(done) == len(text)
