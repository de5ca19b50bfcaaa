import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check.notebooks import notebook_units
from instep.check.problems import Diagnostic
from instep.rules.silencing import read_comments
from instep.trace import Place


def code(source, **more):
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
        **more,
    }


def notebook(*cells, **metadata):
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def dumped(content, indent=1, *, escapes=False, ending="\n"):
    text = json.dumps(content, indent=indent, ensure_ascii=escapes) + "\n"
    return text.replace("\n", ending)


def only(whole):
    [unit] = notebook_units(whole, "a.ipynb")
    return unit


def where(unit, snippet):
    """The place that the checker would give to a piece of the unit's text."""
    before = unit.text[: unit.text.index(snippet)]
    line = before.count("\n") + 1
    return unit.locator.place(line, len(before.rpartition("\n")[2].encode()))


def test_cells_are_joined_in_order_and_places_are_in_cells():
    whole = dumped(
        notebook(
            {"cell_type": "markdown", "metadata": {}, "source": ["# Training\n", "loss"]},
            code(["import torch\n", "%matplotlib inline\n", "x = 'é'; y = 1"]),
            code([]),
            code("for b in loader:\n    loss.backward()\n"),
        )
    )
    unit = only(whole)
    assert unit.kind == "notebook"
    assert where(unit, "y = 1") == Place("a.ipynb", 3, column=10, cell=1)
    assert where(unit, "loss.backward") == Place("a.ipynb", 2, column=4, cell=3)
    assert unit.source_line(Place("a.ipynb", 2, cell=1)) == "%matplotlib inline"
    assert unit.source_line(Place("a.ipynb", 2, cell=3)) == "    loss.backward()"
    assert unit.source_line(Place("a.ipynb", 2, cell=9)) == ""
    assert unit.write_back(unit.text) == whole


def test_format_3():
    whole = dumped(
        {
            "metadata": {"name": ""},
            "nbformat": 3,
            "worksheets": [
                {
                    "cells": [
                        {
                            "cell_type": "code",
                            "input": ["a = 1\n", "b = 2"],
                            "language": "python",
                            "outputs": [],
                        }
                    ]
                },
                {
                    "cells": [
                        {"cell_type": "code", "input": "ls", "language": "bash"},
                        {"cell_type": "code", "input": "c = 3"},
                    ]
                },
            ],
        },
        indent=2,
    )
    unit = only(whole)
    assert where(unit, "c = 3").cell == 2
    changed = unit.write_back(unit.text.replace("b = 2", "b = 3").replace("c = 3", "c = 4"))
    assert changed == whole.replace('"b = 2"', '"b = 3"').replace('"c = 3"', '"c = 4"')


@pytest.mark.parametrize(
    "metadata", [{"kernelspec": {"language": "R"}}, {"language_info": {"name": "julia"}}]
)
def test_other_languages_are_passed_over(metadata):
    assert notebook_units(dumped(notebook(code("x <- 1"), **metadata)), "a.ipynb") == []


def test_notebooks_without_code():
    assert notebook_units(dumped(notebook()), "a.ipynb") == []


def test_top_level_await_parses():
    assert only(dumped(notebook(code("x = await f()\nasync for y in z:\n    pass"))))


@pytest.mark.parametrize(
    "whole",
    [
        "",
        "{}",
        "[]",
        "not json",
        '{"cells": 3}',
        '{"cells": [3]}',
        '{"cells": [{"cell_type": "code"}]}',
        '{"cells": [{"cell_type": "code", "source": 3}]}',
        '{"cells": [{"cell_type": "code", "source": [3]}]}',
        '{"metadata": 3, "cells": []}',
        '{"a":' + "[" * 100_000,
        '{"cells": [\n<<<<<<< HEAD\n',
    ],
)
def test_broken_notebooks_are_one_diagnostic(whole):
    diagnostic = notebook_units(whole, "a.ipynb")
    assert isinstance(diagnostic, Diagnostic)
    assert diagnostic.kind == "bad-notebook"
    assert diagnostic.place.line == (2 if "HEAD" in whole else 1)


def test_a_syntax_error_is_in_its_cell():
    diagnostic = notebook_units(dumped(notebook(code("x = 1"), code("y = 2\nx = = 1"))), "a.ipynb")
    assert (diagnostic.kind, diagnostic.place.cell, diagnostic.place.line) == ("syntax-error", 2, 2)


@pytest.mark.parametrize(
    "cell", ["    x = 1\n    y = 2", "\n  # why\n\n  x = 1", "    %who\n    x = 1"]
)
def test_a_cell_that_is_indented_as_a_whole_is_read_as_ipython_does(cell):
    whole = dumped(notebook(code("a = 1"), code(cell), code("b = 2")))
    unit = only(whole)
    line, column = next(
        (at, text.index("x = 1"))
        for at, text in enumerate(cell.split("\n"), start=1)
        if "x = 1" in text
    )
    assert where(unit, "x = 1") == Place("a.ipynb", line, column=column, cell=2)
    assert where(unit, "b = 2") == Place("a.ipynb", 1, column=0, cell=3)
    assert unit.write_back(unit.text) == whole
    changed = unit.write_back(unit.text.replace("x = 1", "x = 3"))
    assert changed == whole.replace("x = 1", "x = 3")


def test_a_cell_that_goes_further_in_below_a_comment_is_broken():
    diagnostic = notebook_units(dumped(notebook(code("# why\n    x = 1"))), "a.ipynb")
    assert (diagnostic.kind, diagnostic.place.line) == ("syntax-error", 2)


TRAINS = "for x in loader:\n    loss = net(x).mean()\n    loss.backward()\n    optimizer.step()"


def test_a_cell_that_does_not_parse_is_left_out():
    whole = dumped(notebook(code("x = = 1\nloss.backward()"), code(TRAINS), code("see: 3 < ")))
    unit = only(whole)
    assert [(d.kind, d.place.cell, d.place.line) for d in unit.left_out] == [("syntax-error", 1, 1)]
    assert where(unit, "loss = net").cell == 2
    assert unit.write_back(unit.text) == whole
    changed = unit.write_back(unit.text.replace("optimizer.step()", "pass"))
    assert changed == whole.replace("optimizer.step()", "pass")


@pytest.mark.parametrize(
    "broken", ["loss.backward(", 'x = """open\nbackward()', "for backward() in x:", "  if 1:\n"]
)
def test_a_cell_that_is_not_closed_takes_no_other_with_it(broken):
    unit = only(dumped(notebook(code(broken + "backward("), code(TRAINS), code("y = 2"))))
    assert [fault.place.cell for fault in unit.left_out] == [1]
    assert where(unit, "y = 2").cell == 3


def test_comments_in_what_is_hidden_are_left_alone():
    hidden = [
        "x = = 1  # instep: ignore[zero-fill]",
        "!ls  # noqa: INS101",
        "y = 1  # noqa: INS101",
    ]
    whole = dumped(notebook(*map(code, hidden), code(TRAINS)))
    comments = read_comments(only(whole).text)
    assert [comment.text for comment in comments.suppressions] == ["# noqa: INS101"]
    assert where(only(whole), "y = 1").line == 1
    skipped = dumped(notebook(code("x = = 1  # instep: skip-file"), code(TRAINS)))
    assert read_comments(only(skipped).text).skips_file


def test_a_notebook_of_which_nothing_is_left_is_broken():
    whole = dumped(notebook(code("x = 1"), code(TRAINS + "(")))
    assert notebook_units(whole, "a.ipynb").place.cell == 2
    whole = dumped(notebook(code("print 'epoch'"), code(TRAINS)))
    assert notebook_units(whole, "a.ipynb").kind == "python-2"


def test_wanted_is_asked_about_the_code_too():
    whole = dumped(notebook(code("x = 1", outputs=["backward"])))
    asked = []
    assert (
        notebook_units(whole, "a.ipynb", lambda text: asked.append(text) or "backward" in text)
        == []
    )
    assert len(asked) == 2


def test_only_the_changed_line_changes():
    whole = dumped(
        notebook(code(["a = 'é\\u00e9'\n", "b = 1\n", "c = 2"]), code(["d = 1"])), ending="\r\n"
    )
    unit = only(whole)
    changed = unit.write_back(unit.text.replace("b = 1", "b = 2\nb2 = 3"))
    assert changed == whole.replace('"b = 1\\n",', '"b = 2\\n",\r\n    "b2 = 3\\n",')


def test_an_empty_cell_is_filled_in_the_layout_of_the_others():
    whole = dumped(notebook(code([]), code(["d = 1\n", "e"])))
    unit = only(whole)
    first, second = unit.text.split("\n\n", 1)
    assert json.loads(unit.write_back(first + "\nx = 1\ny = 2\n" + second)) == notebook(
        code(["x = 1\n", "y = 2"]), code(["d = 1\n", "e"])
    )


def test_a_lone_empty_cell_is_filled():
    unit = only(dumped(notebook(code([]))))
    assert json.loads(unit.write_back(unit.text.removesuffix("\n") + "x\n"))["cells"][0][
        "source"
    ] == ["x"]


def test_escaped_files_stay_escaped():
    whole = dumped(notebook(code("a = 'é'\nb = 1")), escapes=True)
    changed = only(whole).write_back(only(whole).text.replace("b = 1", "b = 'ü'"))
    assert changed == whole.replace("b = 1", "b = '\\u00fc'")


def test_line_endings_inside_a_cell_are_kept():
    whole = dumped(notebook(code(["a = 1\r\n", "b = 2\r\n", "c = 3"])))
    unit = only(whole)
    assert "\r" not in unit.text
    changed = unit.write_back(unit.text.replace("b = 2", "b = 4"))
    assert changed == whole.replace("b = 2", "b = 4")


def test_an_edit_across_cells_is_refused():
    unit = only(dumped(notebook(code("a = 1"), code("b = 2"))))
    with pytest.raises(ValueError, match="from one notebook cell into another"):
        unit.write_back("a = 1\nb = 2\n")


cell_lines = st.lists(
    st.sampled_from(
        ["x = 1", "é = 'ü\\n'", "", "%who", "!ls -l", "y?", "# c", "z = (1,\n     2)", "%%time"]
    ),
    max_size=5,
).map("\n".join)


@given(
    st.lists(st.tuples(cell_lines, cell_lines, st.booleans()), min_size=1, max_size=4),
    st.sampled_from([None, 1, 4, "\t"]),
    st.booleans(),
)
def test_an_edit_through_write_back_is_the_edit_of_the_notebook(cells, indent, escapes):
    def built(which):
        made = []
        for cell in cells:
            source = cell[which]
            made.append(code(source.splitlines(keepends=True) if cell[2] else source))
        return made

    whole = dumped(notebook(*built(0)), indent, escapes=escapes)
    units = notebook_units(whole, "a.ipynb")
    if isinstance(units, Diagnostic):  # %%time below other lines, for one
        assert units.kind == "syntax-error"
        return
    [unit] = units
    assert unit.write_back(unit.text) == whole
    # Only plain Python is edited, so the new text is what the checker would hand over.
    text = unit.text
    for number, (old, new, _) in enumerate(cells, start=1):
        if not any(mark in old + new for mark in ("%", "!", "?")):
            mark = f"cell {number}\n"
            at = text.index(mark) + len(mark)
            assert text[at:].startswith(old)
            text = text[:at] + new + text[at + len(old) :]
    expected = notebook(*built(0))
    for cell, (old, new, as_list) in zip(expected["cells"], cells, strict=True):
        if not any(mark in old + new for mark in ("%", "!", "?")) and old != new:
            cell["source"] = new.splitlines(keepends=True) if as_list else new
    after = unit.write_back(text)
    assert json.loads(after) == expected
    # Every untouched cell is written as it was; with one layout for all, so is the whole file.
    if all(old or not new for old, new, _ in cells) and indent is not None:
        uses_escapes = escapes and "\\u" in whole
        if uses_escapes == escapes or after.isascii():
            assert after == dumped(expected, indent, escapes=escapes)
