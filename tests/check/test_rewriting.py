import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check.rewriting import apply, changes, rewritten
from instep.check.sources import units_from_bytes
from instep.rules.finding import Edit

lines = st.lists(st.sampled_from(["a", "b", "é", "", "  c"]), max_size=6)


def test_edits_count_bytes_and_keep_their_order():
    text = "é = 1\nb\n"
    edits = [Edit(2, 0, 2, 0, "x"), Edit(1, 5, 1, 6, "2"), Edit(2, 0, 2, 0, "y")]
    assert apply(text, edits) == "é = 2\nxyb\n"
    assert apply(text, []) == text


def test_edits_that_meet_are_refused():
    with pytest.raises(ValueError, match="same text"):
        apply("abc", [Edit(1, 0, 1, 2, ""), Edit(1, 1, 1, 3, "")])


@given(lines, lines, st.booleans(), st.booleans())
def test_changes_make_the_one_of_the_other(old, new, old_ends, new_ends):
    before = "\n".join(old) + "\n" * old_ends
    after = "\n".join(new) + "\n" * new_ends
    assert apply(before, changes(before, after)) == after
    assert changes(before, before) == ()


def test_a_file_is_read_again():
    [unit] = units_from_bytes(b"x = 1\r\n", "a.py")
    again = rewritten(unit, "x = 2\n")
    assert (again.text, again.origin.whole) == ("x = 2\n", "x = 2\r\n")
    assert rewritten(unit, "x = (\n") is None
    [latin] = units_from_bytes("# coding: latin-1\nx = 'é'\n".encode("latin-1"), "a.py")
    assert rewritten(latin, latin.text.replace("é", "ж")) is None


def test_a_block_is_found_again_among_equal_ones():
    whole = b"```python\nx = 1\n```\n\n```python\nx = 1\n```\n"
    first, second = units_from_bytes(whole, "a.md")
    again = rewritten(second, "x = 2\ny = 1\n")
    assert again.locator.place(1).line == 6
    assert again.origin.whole.count("x = 1") == 1
    assert rewritten(first, "x = 2\n").locator.place(1).line == 2


def test_an_edit_stays_in_its_cell():
    def cell(text):
        return {"cell_type": "code", "metadata": {}, "outputs": [], "source": text}

    cells = [cell("%time\nx = 1"), cell("y = 1")]
    [unit] = units_from_bytes(json.dumps({"cells": cells, "metadata": {}}).encode(), "a.ipynb")
    again = rewritten(unit, unit.text.replace("y = 1", "y = 2\nz = 3"))
    assert [c["source"] for c in json.loads(again.origin.whole)["cells"]] == [
        "%time\nx = 1",
        "y = 2\nz = 3",
    ]
    assert rewritten(unit, unit.text.split("y = 1")[0].rpartition("#")[0]) is None
