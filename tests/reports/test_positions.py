import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.reports import split_lines
from instep.reports.positions import (
    before,
    condition_of,
    in_order,
    span_between,
    span_of,
    utf16_units,
)
from instep.trace import Place
from tests.reports.kit import at, plain, source_of, texts

LINE = "é損😀 = x"  # 2 + 3 + 4 bytes, 1 + 1 + 2 units


def test_columns_in_three_units():
    source = source_of({"a.py": LINE})
    place = at(1, 9, 12, path="a.py")
    assert span_of(place, source).column == 4
    assert span_of(place, source, utf16_units).column == 5
    assert span_of(place, source).end_column == 7
    assert span_of(place, source, utf16_units).end_column == 8


def test_a_cut_inside_a_character_stays_before_it():
    assert [before(LINE, column) for column in (0, 1, 2, 4, 5)] == ["", "", "é", "é", "é損"]
    assert before("ab", -1) == ""
    assert before("ab", 99) == "ab"


@given(texts, st.data())
def test_before_is_the_inverse_of_counting_bytes(line, data):
    index = data.draw(st.integers(0, len(line)))
    bytes_before = len(line[:index].encode("utf-8", "surrogatepass"))
    assert len(before(line, bytes_before)) == index


@given(texts)
def test_utf16_units_are_what_utf16_has(text):
    assert utf16_units(text) == len(text.encode("utf-16-le", "surrogatepass")) // 2


def test_lines_are_those_of_the_parser():
    text = "a = '\x0c\x1c\u2028'\rb\r\nc"
    assert split_lines(text) == ["a = '\x0c\x1c\u2028'", "b", "c"]
    assert len(text.splitlines()) > 3


@pytest.mark.parametrize("line", [0, -1, 2, 99])
def test_a_line_that_is_not_there_is_not_exact(line):
    span = span_of(at(line, 3, 5, path="a.py"), source_of({"a.py": "abc"}))
    assert not span.is_exact
    assert (span.line, span.column) == (line, 4)
    assert not span_of(at(1, 3, 5, path="b.py"), source_of({})).is_exact


def test_column_zero_needs_no_text():
    span = span_between(source_of({}), "a.py", None, start=(9, 0), end=(9, 0))
    assert span.is_exact
    assert (span.column, span.end_column) == (1, 1)


def test_what_is_not_known_stays_unknown_and_ends_do_not_precede_starts():
    source = source_of({"a.py": "abcdef\nghi"})
    assert span_of(Place("a.py", 1), source).column is None
    assert span_of(Place("a.py", 1, end_column=3), source).end_column is None
    backwards = span_of(Place("a.py", 2, 2, end_line=1, end_column=1), source)
    assert (backwards.end_line, backwards.end_column) == (2, 3)


def test_order_and_condition():
    places = [
        at(9, 0, 1, path="b.py"),
        at(10, 0, 1),
        at(9, 5, 6),
        at(9, 0, 1),
        Place("train.py", 1),
        at(1, 0, 1, path="n.ipynb", cell=2),
        at(7, 0, 1, path="n.ipynb", cell=1),
    ]
    ordered = [each.place for each in in_order(plain(place=place) for place in places)]
    assert [(place.path, place.cell, place.line, place.column) for place in ordered] == [
        ("b.py", None, 9, 0),
        ("n.ipynb", 1, 7, 0),
        ("n.ipynb", 2, 1, 0),
        ("train.py", None, 1, None),
        ("train.py", None, 9, 0),
        ("train.py", None, 9, 5),
        ("train.py", None, 10, 0),
    ]
    assert condition_of(plain(condition="when a")) == "when a"
    assert condition_of(plain(condition="a is None")) == "when a is None"
    assert condition_of(plain(condition="")) is None
