import json

import pytest

from instep.check.sources import units_from_bytes
from instep.check.translate import applied, as_shown, in_file
from instep.rules import Edit, Finding, Fix, Related, Severity
from instep.trace import Place

MARKDOWN = "- a\n\n  ```python\n  é = 1\n  y = 2\n  ```\n"


def moved(unit, *edits, line=1):
    place = unit.locator.place(line, 0)
    finding = Finding("INS101", "n", Severity.ERROR, place, "m.", fix=Fix("t", edits))
    return in_file(unit, finding).fix.edits


def test_plain_files_keep_their_edits():
    [unit] = units_from_bytes(b"x = 1\n", "a.py")
    edit = Edit(1, 0, 1, 1, "y")
    assert moved(unit, edit) == (edit,)


@pytest.mark.parametrize(
    "edit",
    [
        Edit(1, 5, 1, 6, "2"),
        Edit(1, 0, 1, 0, "z = 0\n"),
        Edit(1, 6, 1, 6, "\nz = 0\nw = 0"),
        Edit(2, 0, 2, 0, "z = 0\n"),
        Edit(1, 0, 2, 0, ""),
        Edit(1, 0, 2, 0, "a = 0\nb = 0\n"),
        Edit(2, 0, 3, 0, "a = 0\nb = 0\n"),
        Edit(3, 0, 3, 0, "a = 0\nb = 0\n"),
    ],
)
def test_an_edit_of_a_block_is_the_same_edit_of_the_file(edit):
    """What a program makes of the reported edits is what --fix writes."""
    [unit] = units_from_bytes(MARKDOWN.encode(), "a.md")
    written = unit.write_back(applied(unit.text, [edit]))
    assert applied(MARKDOWN, moved(unit, edit)) == written


def test_notebook_edits_stay_in_their_cell():
    cells = [{"cell_type": "code", "source": ["%magic\n", "x = 1"]}] * 2
    [unit] = units_from_bytes(json.dumps({"cells": cells}).encode(), "a.ipynb")
    assert unit.locator.spots[4].cell == 2
    edit = Edit(6, 4, 6, 5, "2")
    assert moved(unit, edit, line=6) == (Edit(2, 4, 2, 5, "2"),)
    assert moved(unit, edit, line=3) == ()
    assert moved(unit, Edit(2, 0, 6, 0, ""), line=3) == ()
    assert moved(unit, Edit(9, 0, 99, 0, ""), line=6) == ()


def test_of_overlapping_edits_one_is_made():
    text = "a  # b, c\n"
    assert applied(text, [Edit(1, 3, 1, 9, "# b"), Edit(1, 3, 1, 9, "# c")]) in (
        "a  # b\n",
        "a  # c\n",
    )


def test_other_files_are_named_the_way_the_file_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = Place("lib/helper.py", 3)
    found = Finding("INS101", "n", Severity.ERROR, place, "m.", related=(Related(place, "here"),))
    assert as_shown(found, "a.py") == found
    shown = as_shown(found, str(tmp_path / "a.py"))
    absolute = str(tmp_path / "lib" / "helper.py")
    assert {shown.place.path, shown.related[0].place.path} == {absolute}
