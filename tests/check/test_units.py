import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check.sources import Locator, Splice, Spot, merge_back, units_from_bytes
from instep.trace import Place


def test_the_locator_of_a_file_changes_nothing():
    place = Locator("a.py").place(3, 4, 5, 6, function="f", snippet="x")
    assert place == Place("a.py", 3, 4, 5, 6, "f", "x")
    assert Locator("a.py").text_line(place) == 3


def test_a_locator_with_spots():
    locator = Locator("a.md", (Spot(10, 4), Spot(11, 2), Spot(12, 0)))
    assert locator.place(1, 0, 2, 3) == Place("a.md", 10, 4, 11, 5)
    assert locator.place(3) == Place("a.md", 12)
    assert [locator.text_line(Place("a.md", line)) for line in (9, 10, 12)] == [None, 1, 3]
    # A syntax error may lie after the last line.
    assert locator.place(9, 0).line == 12
    assert locator.place(0, 0).line == 10


def test_a_span_ends_in_the_cell_it_starts_in():
    locator = Locator("a.ipynb", (Spot(1, cell=1), Spot(1, cell=2)))
    place = locator.place(1, 0, 2, 5)
    assert (place.cell, place.end_line, place.end_column) == (1, None, None)


def test_the_mark_before_a_cell_gives_way_to_its_first_line():
    locator = Locator("a.ipynb", (Spot(1, cell=1), Spot(1, cell=1), Spot(2, cell=1)))
    assert locator.text_line(Place("a.ipynb", 1, cell=1)) == 2


names = st.lists(st.sampled_from(["x = 1", "é = 'ü'", "", "# c", "y = (1,)"]), max_size=6)


@given(
    names,
    names,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.sampled_from(["utf-8", "latin-1"]),
)
def test_an_edit_through_write_back_is_the_edit_of_the_file(old, new, ending, bom, encoding):
    cookie = [] if encoding == "utf-8" else ["# coding: latin-1"]
    mark = b"\xef\xbb\xbf" if bom and not cookie else b""
    # Two lines at the least: of a file without a line ending nobody knows what it would be.
    before = [*cookie, "import torch", *old, ""]
    after = [*cookie, "import torch", *new, ""]
    data = mark + ending.join(before).encode(encoding)
    [unit] = units_from_bytes(data, "a.py")
    assert unit.text == "\n".join(before)
    assert unit.to_bytes(unit.write_back(unit.text)) == data
    expected = mark + ending.join(after).encode(encoding)
    assert unit.to_bytes(unit.write_back("\n".join(after))) == expected


def test_text_that_the_encoding_cannot_hold_is_refused():
    [unit] = units_from_bytes(b"# coding: latin-1\nx = 1\n", "a.py")
    with pytest.raises(UnicodeEncodeError):
        unit.to_bytes(unit.write_back("# coding: latin-1\nx = '日'\n"))


def test_source_lines():
    [unit] = units_from_bytes("\ufeffa = 1\r\nb = 2".encode(), "a.py")
    assert unit.source_line(Place("a.py", 1)) == "a = 1"
    assert unit.source_line(Place("a.py", 2)) == "b = 2"
    assert unit.source_line(Place("a.py", 3)) == ""


def test_several_units_of_one_file_go_back_together():
    markdown = b"```python\na = 1\n```\n\n- b\n\n  ```py\n  b = 2\n  ```\n"
    first, second = units_from_bytes(markdown, "a.md")
    merged = merge_back([(first, "a = 10\na2 = 1\n"), (second, "b = 20\n")])
    assert merged == "```python\na = 10\na2 = 1\n```\n\n- b\n\n  ```py\n  b = 20\n  ```\n"
    assert Splice(1, 2, "x") < Splice(2, 2, "")


def test_a_unit_is_frozen_and_shows_itself_briefly():
    [unit] = units_from_bytes(b"x = 1\n" * 100, "a.py")
    assert len(repr(unit)) < 200
    with pytest.raises(AttributeError):
        unit.text = ""
