import time

from hypothesis import given
from hypothesis import strategies as st

from instep.reports.cells import show, width_of
from tests.reports.kit import raw_controls, texts


def width(text):
    return sum(map(width_of, text))


def at_column(text, column):
    """The character that a terminal shows in a column."""
    for char in text:
        if column == 0 and width_of(char):
            return char
        column -= width_of(char)
    return None


def test_tabs_go_to_the_next_stop_and_wide_characters_take_two():
    shown = show("\ta\t損b", focus=0, width=80)
    assert shown.text == "    a   損b"
    assert [shown.column(index) for index in range(6)] == [0, 4, 5, 8, 10, 11]


def test_combining_marks_take_no_room():
    shown = show("e\u0301x", focus=0, width=80)
    assert [shown.column(index) for index in range(4)] == [0, 1, 1, 2]


def test_a_long_line_is_shown_from_its_start_while_the_focus_is_in_view():
    line = "x" * 20 + "F" + "y" * 100
    shown = show(line, focus=20, width=50)
    assert shown.text == "x" * 20 + "F" + "y" * 23 + "..."
    assert shown.text[shown.column(20)] == "F"


def test_a_long_line_is_cut_on_both_sides_of_a_far_focus():
    line = "x" * 1000 + "F" + "y" * 1000
    shown = show(line, focus=1000, width=50)
    assert shown.text == "..." + "x" * 14 + "F" + "y" * 29 + "..."
    assert shown.text[shown.column(1000)] == "F"
    # What is not shown is at the edges.
    assert shown.column(0) == 3
    assert shown.column(2000) == 47


def test_megabytes_in_one_line_cost_nothing():
    line = "x" * 50_000_000
    start = time.perf_counter()
    assert len(show(line, focus=25_000_000, width=100).text) == 100
    assert time.perf_counter() - start < 0.5


@given(st.lists(texts, max_size=8).map("".join), st.data(), st.integers(0, 120))
def test_columns_point_at_what_they_name(line, data, columns):
    focus = data.draw(st.integers(0, len(line)))
    shown = show(line, focus=focus, width=columns)
    assert not raw_controls(shown.text)
    assert width(shown.text) <= max(columns, 40)
    assert list(shown.starts) == sorted(shown.starts)
    assert shown.first <= focus <= shown.first + len(shown.starts) - 1
    for index, start in enumerate(shown.starts[:-1]):
        char = line[shown.first + index]
        if char.isascii() and char.isprintable():
            assert at_column(shown.text, start) == char
