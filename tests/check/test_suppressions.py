import json

import pytest

from instep.check.sources import units_from_bytes
from instep.check.suppressions import read_comments, suppress
from instep.rules.finding import Finding, Severity
from instep.trace import Place

RULES = {"INS101": "missing-zero-grad", "INS201": "unscaled-accumulation", "INS602": "zero-fill"}


def unit_of(text, path="a.py"):
    [unit] = units_from_bytes(text.encode(), path)
    return unit


def finding(line, code="INS101", cell=None):
    return Finding(code, RULES[code], Severity.ERROR, Place("a.py", line, column=0, cell=cell), "m")


def applied(text, *findings, checked=None):
    return suppress(unit_of(text), findings, RULES, checked=checked)


@pytest.mark.parametrize(
    "comment",
    [
        "# instep: ignore",
        "#instep:ignore",
        "# instep: ignore[missing-zero-grad]",
        "# instep: ignore[INS101]",
        "# instep: ignore[zero-fill, ins101]",
        "# instep: ignore [Missing-Zero-Grad]",
        "# noqa",
        "# NOQA",
        "# noqa: INS101",
        "# noqa:INS101",
        "# noqa: E501, INS101",
        "# noqa: E501 INS101 because",
        "# noqa: because",
        "# noqa: E501 # noqa",
        "# type: ignore # noqa: INS101",
        "# pylint: disable=x # instep: ignore[INS101] on purpose",
    ],
)
def test_silenced(comment):
    result = applied(f"x = 1\nopt.step()  {comment}\n", finding(2))
    assert (len(result.kept), len(result.silenced)) == (0, 1)


@pytest.mark.parametrize(
    "comment",
    [
        "# instep: ignore[zero-fill]",
        "# instep: ignore[]",
        "# noqa: E501",
        "# noqa: INS102",
        "# instep: ignored",
        "# instep: ignore-me",
        "# ignore",
        "'# instep: ignore'",
        "'''# noqa'''",
    ],
)
def test_not_silenced(comment):
    assert len(applied(f"x = 1\nopt.step();  {comment}\n", finding(2)).kept) == 1


def test_the_line_counts():
    text = "a()\nb()  # instep: ignore\nc()\n"
    result = applied(text, finding(1), finding(2), finding(3))
    assert [f.place.line for f in result.kept] == [1, 3]


def test_the_first_line_of_a_statement_counts_for_all_of_it():
    text = "f(  # instep: ignore\n    a,\n    b,\n)\ng()\n"
    assert [f.place.line for f in applied(text, *map(finding, range(1, 6))).kept] == [5]


def test_a_later_line_counts_for_itself():
    text = "f(\n    a,  # instep: ignore\n    b,\n)\n"
    assert [f.place.line for f in applied(text, *map(finding, range(1, 5))).kept] == [1, 3, 4]


@pytest.mark.parametrize(
    "text",
    [
        "for x in f(  # instep: ignore\n    y\n):\n    g()\n    h()\n",
        "with f(  # instep: ignore\n    y\n) as z:\n    g()\n    h()\n",
        "class A(  # instep: ignore\n    B\n):\n    @c\n    def f(): ...\n",
        "match f(  # instep: ignore\n    y\n):\n    case 1:\n        h()\n",
    ],
)
def test_the_head_of_a_block_is_not_its_body(text):
    assert [f.place.line for f in applied(text, *map(finding, range(1, 6))).kept] == [4, 5]


def test_skip_file():
    result = applied("# instep: skip-file\nf()\n", finding(2))
    assert (result.kept, len(result.silenced), result.unused) == ((), 1, ())
    assert len(applied("'''# instep: skip-file'''\nf()\n", finding(2)).kept) == 1


def edited(text, found):
    [edit] = found.fix.edits
    lines = text.split("\n")
    raw = lines[edit.line - 1].encode()
    lines[edit.line - 1] = (
        raw[: edit.column] + edit.text.encode() + raw[edit.end_column :]
    ).decode()
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("line", "says", "after"),
    [
        ("é()  # instep: ignore", "silences nothing", "é()"),
        ("é()  # instep: ignore[zero-fill]", "zero-fill is not reported here", "é()"),
        ("é()  # noqa: INS602", "INS602 is not reported here", "é()"),
        ("é()  # noqa: E501, INS602", "INS602 is not reported", "é()  # noqa: E501"),
        ("é()  # noqa: INS602 # why", "INS602 is not reported", "é()   # why"),
        (
            "é()  # instep: ignore[INS101, zero-fill]",
            "zero-fill is",
            "é()  # instep: ignore[INS101]",
        ),
        (
            "é()  # instep: ignore[INS101, zerofill]",
            "Did you mean 'zero-fill'?",
            "é()  # instep: ignore[INS101]",
        ),
        ("é()  # instep: ignore[]", "names no rule", "é()"),
        ("é()  # noqa: INS999", "there is no rule 'INS999'", "é()"),
    ],
)
def test_unused_comments_are_findings_with_a_fix(line, says, after):
    text = f"x\n{line}\n"
    hit = [finding(2)] if "INS101" in line else []
    [unused] = applied(text, *hit).unused
    assert isinstance(unused, Finding)
    assert (unused.code, unused.name, unused.place.line) == ("INS001", "unused-suppression", 2)
    assert says in unused.message
    assert edited(text, unused) == f"x\n{after}\n"


@pytest.mark.parametrize(
    "comment", ["# noqa", "# noqa: E501", "# noqa: F401, E501", "# instep is nice"]
)
def test_comments_for_others_are_not_reported(comment):
    assert applied(f"f()  {comment}\n").unused == ()


def test_rules_that_did_not_run_are_not_called_unused():
    text = "f()  # instep: ignore[zero-fill, INS101]\ng()  # instep: ignore\n"
    [unused] = applied(text, checked={"INS101"}).unused
    assert "INS101" in unused.message
    assert len(applied(text).unused) == 3


def test_rules_of_a_running_job_are_not_called_unused():
    text = "f()  # instep: ignore[nonfinite-step, zero-fill]\ng()  # noqa: INS505\n"
    [unused] = suppress(unit_of(text), (), {**RULES, "INS505": "nonfinite-step"}).unused
    assert "zero-fill" in unused.message


def test_misspelled_directives():
    [unused] = applied("f()  # instep: ignroe[zero-fill]\n").unused
    assert "Did you mean 'ignore'?" in unused.message
    assert applied("f()  # instep: it is meant\n").unused == ()


def test_used_comments_are_not_reported():
    assert applied("f()  # noqa: INS101\n", finding(1), finding(1)).unused == ()


def test_positions_are_in_bytes():
    [comment] = read_comments("é = 'ü'  # ß # instep: ignore").suppressions
    line = "é = 'ü'  # ß # instep: ignore".encode()
    assert line[comment.column : comment.end_column] == b"# instep: ignore"


def test_notebooks_count_line_by_cell():
    cells = [
        {"cell_type": "code", "source": source}
        for source in ("a()\nb()", "c()\nd()  # noqa: INS101")
    ]
    unit = unit_of(json.dumps({"cells": cells}), "a.ipynb")
    findings = [finding(2, cell=1), finding(2, cell=2), finding(1, cell=2)]
    result = suppress(unit, findings, RULES)
    assert [f.place.cell for f in result.silenced] == [2]
    cells[1]["source"] = "c()\nd()  # noqa: INS602"
    unit = unit_of(json.dumps({"cells": cells}), "a.ipynb")
    [unused] = suppress(unit, findings, RULES).unused
    assert (unused.place.cell, unused.place.line, unused.place.column) == (2, 2, 5)


def test_markdown_lines():
    unit = unit_of("# A\n\n- x\n\n  ```python\n  a()  # instep: ignore\n  b()\n  ```\n", "a.md")
    result = suppress(unit, [finding(6), finding(7)], RULES)
    assert [f.place.line for f in result.kept] == [7]


def test_a_place_outside_the_unit_is_kept():
    unit = unit_of("```python\na()  # instep: ignore\n```\n", "a.md")
    assert len(suppress(unit, [finding(99)], RULES).kept) == 1


def test_what_tokenize_cannot_read_does_not_raise():
    assert read_comments("# instep: ignore\nx = '''").suppressions[0].line == 1
