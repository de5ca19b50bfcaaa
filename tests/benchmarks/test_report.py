import pytest

from benchmarks.report import README, replace_section, table, versions, write_section
from benchmarks.splits.__main__ import SECTIONS


def test_a_table():
    assert table(["a", "b"], [["1", "2"], ["3", "4"]]) == (
        "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |"
    )


def test_a_bar_in_a_cell_does_not_end_it():
    assert table(["a"], [["x | y"]]).endswith(r"| x \| y |")


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="1 cells under 2 headings"):
        table(["a", "b"], [["1"]])


def test_a_section_is_replaced_and_nothing_else():
    text = "before\n<!-- begin x -->\nold\n<!-- end x -->\nafter\n"
    once = replace_section(text, "x", "new")
    assert once == "before\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\nafter\n"
    assert replace_section(once, "x", "new") == once


@pytest.mark.parametrize(
    "text",
    [
        "no markers",
        "<!-- begin x -->",
        "<!-- end x --> <!-- begin x -->",
        "<!-- begin x --><!-- end x --><!-- begin x --><!-- end x -->",
    ],
)
def test_markers_that_are_not_one_pair_are_refused(text):
    with pytest.raises(ValueError, match="begin x"):
        replace_section(text, "x", "new")


def test_writing_a_section(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- begin x --><!-- end x -->", encoding="utf-8")
    write_section("x", "µs", readme)
    assert "µs" in readme.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["exactness", "overhead", "check-speed", *(f"splits-{name}" for name in SECTIONS)]
)
def test_the_readme_has_every_place(name):
    before = README.read_text(encoding="utf-8")
    assert len(replace_section(before, name, "")) < len(before)


def test_a_missing_package_is_named():
    assert versions(["no-such-package-here"]).endswith("no-such-package-here missing")
