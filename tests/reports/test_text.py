import re

import pytest
from hypothesis import given

from instep.reports import Options
from instep.reports.text import render
from instep.rules import Edit, Fix, Related, Severity
from instep.trace import Place
from tests.reports.kit import LOOP, at, cases, finding, plain, raw_controls, source_of

SGR = re.compile(r"\x1b\[[0-9;]*m")


HINT = re.compile(r"^ *= (?:to do: .*|more: instep explain \S+)\n", re.MULTILINE)


def whole(*found, files=None, **options):
    return render(found, source_of(files or {"train.py": LOOP}), Options(**options))


def shown(*found, **more):
    """Return the report but for the hint that every finding without a fix has."""
    return HINT.sub("", whole(*found, **more))


def test_without_a_fix_there_is_a_hint():
    source = source_of({"train.py": LOOP})
    hint = "  = to do: Clear once per update.\n  = more: instep explain missing-zero-grad\n"
    assert hint in render([plain()], source, Options())
    assert hint in render([plain(severity=Severity.INFO)], source, Options())
    told = plain(advice="Clear it.")
    assert "  = to do: Clear it.\n  = more: " in render([told], source, Options())
    assert "more:" not in render([finding()], source, Options())


def test_golden():
    assert shown(finding()) == (
        "train.py:5:5: error INS101 missing-zero-grad: "
        "no gradient is ever cleared, so each update adds up all batches.\n"
        "  |\n"
        "3 |     loss.backward()\n"
        "  |     --------------- backward here\n"
        "4 |     log(loss)\n"
        "5 |     optimizer.step()\n"
        "  |     ^^^^^^^^^^^^^^^^\n"
        "  = when scaler is not None\n"
        "  = fix: clear the gradients after the step [--fix]\n"
    )


def test_nothing_found():
    assert shown() == ""


def test_an_empty_line_between_two_findings_and_unsafe_fixes():
    first = plain(place=at(2, 0, 1), message="a.", severity=Severity.WARNING)
    second = plain(place=at(3, 0, 1), message="b.", fix=Fix("do", (), is_safe=False))
    assert shown(second, first, files={"train.py": "x\ny\nz"}) == (
        "train.py:2:1: warning INS101 missing-zero-grad: a.\n"
        "  |\n"
        "2 | y\n"
        "  | ^\n"
        "\n"
        "train.py:3:1: error INS101 missing-zero-grad: b.\n"
        "  |\n"
        "3 | z\n"
        "  | ^\n"
        "  = fix: do [--fix --unsafe-fixes]\n"
    )


def test_far_lines_other_files_and_two_marks_in_one_line():
    lines = [f"line_{number}" for number in range(1, 13)]
    lines[9] = "scaler.step(optimizer); optimizer.step()"
    related = (
        Related(at(2, 0, 6), "backward here"),
        Related(at(10, 0, 22), "stepped here"),
        Related(at(10, 24, 40), "and again"),
        Related(at(1, 0, 5, path="lib.py"), "cleared here"),
        Related(at(7, 4, 6, path="gone.py"), "unscaled here"),
    )
    files = {"train.py": "\n".join(lines), "lib.py": "zero()"}
    assert shown(plain(place=at(10, 24, 40), message="m.", related=related), files=files) == (
        "train.py:10:25: error INS101 missing-zero-grad: m.\n"
        "   |\n"
        " 2 | line_2\n"
        "   | ------ backward here\n"
        "...\n"
        "10 | scaler.step(optimizer); optimizer.step()\n"
        "   |                         ^^^^^^^^^^^^^^^^ and again\n"
        "   | ---------------------- stepped here\n"
        "  --> lib.py:1\n"
        "   |\n"
        " 1 | zero()\n"
        "   | ----- cleared here\n"
        "   = unscaled here: gone.py:7:5\n"
    )


def test_a_notebook():
    place = at(5, 0, 4, path="n.ipynb", cell=3)
    related = Related(at(1, 0, 4, path="n.ipynb", cell=2), "backward here")
    files = {("n.ipynb", 3): "\n\n\n\nstep()", ("n.ipynb", 2): "back()"}
    assert shown(plain(place=place, message="m.", related=(related,)), files=files) == (
        "n.ipynb:cell 3:line 5: error INS101 missing-zero-grad: m.\n"
        "  |\n"
        "5 | step()\n"
        "  | ^^^^\n"
        " --> n.ipynb:cell 2:line 1\n"
        "  |\n"
        "1 | back()\n"
        "  | ---- backward here\n"
    )


def test_tabs_and_wide_characters_keep_the_caret_under_its_text():
    line = "\tx = 損失(é)\tstep()"
    start = len(line[: line.index("step")].encode())
    assert shown(plain(place=at(1, start, start + 4), message="m."), files={"train.py": line}) == (
        "train.py:1:12: error INS101 missing-zero-grad: m.\n"
        "  |\n"
        "1 |     x = 損失(é) step()\n"
        "  |                 ^^^^\n"
    )


def test_a_very_long_line_is_cut_around_the_caret():
    line = "x = " + "1 + " * 500 + "step() + " + "2 + " * 500
    start = line.index("step")
    report = shown(
        plain(place=at(1, start, start + 6), message="m."), files={"train.py": line}, width=60
    )
    assert report == (
        "train.py:1:2005: error INS101 missing-zero-grad: m.\n"
        "  |\n"
        "1 | ...1 + 1 + 1 + 1 + step() + 2 + 2 + 2 + 2 + 2 + 2 + 2...\n"
        "  |                    ^^^^^^\n"
    )
    assert max(map(len, report.splitlines()[1:])) == 60


def test_spans_of_several_lines_and_unknown_columns():
    files = {"train.py": "    step(  \n  )"}
    several = plain(place=at(1, 4, 3, end_line=2), message="m.")
    assert shown(several, files=files).splitlines()[2:] == ["1 |     step(  ", "  |     ^^^^^"]
    unknown = plain(place=Place("train.py", 1), message="m.")
    assert shown(unknown, files=files) == (
        "train.py:1: error INS101 missing-zero-grad: m.\n  |\n1 |     step(  \n  |     ^^^^^\n"
    )
    start_only = plain(place=Place("train.py", 1, 4), message="m.")
    assert shown(start_only, files=files).splitlines()[-1] == "  |     ^"


def test_an_empty_span_has_one_caret():
    insertion = plain(place=at(1, 2, 2), message="m.")
    assert shown(insertion, files={"train.py": "ab"}).splitlines()[-1] == "  |   ^"
    blank = plain(place=Place("train.py", 1), message="m.")
    assert shown(blank, files={"train.py": ""}).splitlines()[1:] == ["  |", "1 |", "  | ^"]


def test_without_the_source_the_snippet_is_shown_or_nothing():
    place = Place("gone.py", 7, 4, 7, 12, snippet="opt.step()\nmore")
    assert shown(plain(place=place, message="m.")).splitlines()[1:] == [
        "  |",
        "7 | opt.step()",
        "  | ^^^^^^^^^^",
    ]
    bare = plain(place=Place("gone.py", 7, 4), message="m.")
    assert shown(bare) == "gone.py:7:5: error INS101 missing-zero-grad: m.\n"


@pytest.mark.parametrize("line", [0, -1, 99])
def test_a_line_that_is_not_there(line):
    assert shown(plain(place=Place("train.py", line, 0), message="m.")).count("\n") == 1


def test_a_file_cannot_write_to_the_terminal():
    files = {"a\x1b[2J.py": "x = '\x1b]0;owned\x07' # \u202e\n"}
    report = shown(
        plain(place=at(1, 0, 1, path="a\x1b[2J.py"), message="bad\nname \x9b31m"), files=files
    )
    assert report == (
        "a\\x1b[2J.py:1:1: error INS101 missing-zero-grad: bad\\nname \\x9b31m\n"
        "  |\n"
        "1 | x = '\\x1b]0;owned\\x07' # \\u202e\n"
        "  | ^\n"
    )


def test_colours():
    report = shown(finding(), colour=True)
    assert "\x1b[1;31merror\x1b[0m" in report
    assert "\x1b[1;31m^^^^^^^^^^^^^^^^\x1b[0m" in report
    assert "\x1b[36m--------------- backward here\x1b[0m" in report


@given(cases())
def test_no_raw_controls_and_colours_change_nothing_else(case):
    files, found = case
    report = whole(*found, files=files)
    assert raw_controls(report) <= {"\n"}
    report.encode()
    painted = whole(*found, files=files, colour=True)
    assert SGR.sub("", painted) == report
    for code in SGR.findall(painted):
        assert code == "\x1b[0m" or code.startswith(("\x1b[1", "\x1b[3"))
    headers = [row for row in report.split("\n") if re.search(r": (error|warning|info) ", row)]
    assert len(headers) >= len(found)


def test_edits_do_not_show():
    fix = Fix("do", (Edit(1, 0, 1, 0, "\x1bsecret"),))
    assert "secret" not in shown(plain(fix=fix))
