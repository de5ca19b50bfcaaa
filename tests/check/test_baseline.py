import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check.baseline import Baseline, Fingerprint, fingerprints, read_baseline, write_baseline
from instep.errors import CheckError
from instep.rules.finding import Finding, Severity
from instep.trace import Place

SOURCE = ["for x in y:", "    opt.step()", "for x in z:", "    opt.step()", "    opt.zero_grad()"]


def finding(line, path="train.py", code="INS101", cell=None, column=4):
    return Finding(
        code, code.lower(), Severity.ERROR, Place(path, line, column=column, cell=cell), "m"
    )


def line_of(lines):
    return lambda place: lines[place.line - 1]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_written_read_and_filtered(tmp_path):
    findings = [finding(4), finding(2), finding(5, code="INS102")]
    written = write_baseline("base.json", findings, line_of(SOURCE))
    assert read_baseline("base.json") == written
    filtered = written.filter(findings, line_of(SOURCE))
    assert filtered == ((), tuple(findings), ())
    assert [path.name for path in tmp_path.iterdir()] == ["base.json"]


def test_the_file_is_for_people_too():
    write_baseline("base.json", [finding(4), finding(2)], line_of(SOURCE))
    text = Path("base.json").read_text()
    entry = {"path": "train.py", "code": "INS101", "text": "opt.step()", "occurrence": 0}
    assert json.loads(text) == {"version": 1, "findings": [entry, entry | {"occurrence": 1}]}
    assert text.endswith("}\n")


def test_unrelated_edits_change_nothing():
    base = write_baseline("base.json", [finding(2), finding(4)], line_of(SOURCE))
    edited = ["import torch", "", *SOURCE[:3], "  \topt.step()  ", "opt.zero_grad()"]
    assert base.filter([finding(4), finding(6)], line_of(edited)).new == ()


def test_a_third_of_the_same_is_new_and_a_mended_one_stale():
    base = write_baseline("base.json", [finding(2), finding(4)], line_of(SOURCE))
    edited = [*SOURCE, "opt.step()"]
    third = finding(6)
    assert base.filter([finding(2), finding(4), third], line_of(edited)).new == (third,)
    filtered = base.filter([finding(4)], line_of(SOURCE))
    assert (filtered.new, len(filtered.known)) == ((), 1)
    assert filtered.stale == (Fingerprint("train.py", "INS101", "opt.step()", 1),)


@pytest.mark.parametrize("other", [finding(2, code="INS102"), finding(2, path="b.py"), finding(5)])
def test_another_rule_file_or_line_is_new(other):
    base = write_baseline("base.json", [finding(2)], line_of(SOURCE))
    assert base.filter([other], line_of(SOURCE)).new == (other,)


def test_files_that_were_not_checked_are_not_stale():
    base = write_baseline("base.json", [finding(2), finding(2, path="b.py")], line_of(SOURCE))
    assert base.filter([], line_of(SOURCE), checked=["./train.py"]).stale[0].path == "train.py"
    assert base.filter([], line_of(SOURCE), checked=["c.py"]).stale == ()
    assert len(base.filter([], line_of(SOURCE)).stale) == 2


def test_paths_are_relative_to_the_baseline(tmp_path, monkeypatch):
    base = write_baseline("base.json", [finding(2, path="src/a.py")], line_of(SOURCE))
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    for path in ("a.py", "../src/a.py", str(tmp_path / "src/a.py")):
        assert base.filter([finding(2, path=path)], line_of(SOURCE)).new == ()
    assert read_baseline("../base.json") == base


def test_the_order_of_cells_counts():
    marks = fingerprints([finding(2, cell=3), finding(2, cell=1)], line_of(SOURCE), Path.cwd())
    assert [mark.occurrence for mark in marks] == [1, 0]


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from(["INS101", "INS102"]), st.integers(0, 3)),
        unique=True,
    )
)
def test_fingerprints_are_unique_and_do_not_depend_on_the_order(rows):
    findings = [finding(line, code=code, column=column) for line, code, column in rows]
    marks = fingerprints(findings, line_of(SOURCE), Path.cwd())
    assert len(set(marks)) == len(findings)
    assert fingerprints(findings[::-1], line_of(SOURCE), Path.cwd()) == marks[::-1]
    assert Baseline(Path.cwd(), frozenset(marks)).filter(findings, line_of(SOURCE)).new == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"version": 2, "findings": []}',
        '{"version": 1}',
        '{"version": 1, "findings": [3]}',
        '{"version": 1, "findings": [{"path": "a"}]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_baseline_is_an_error_of_four_lines(text):
    Path("base.json").write_text(text)
    with pytest.raises(CheckError) as error:
        read_baseline("base.json")
    assert error.value.more == "baseline"
    assert "base.json" in error.value.what
    assert len(str(error.value).splitlines()) == 4


def test_missing_and_unwritable():
    with pytest.raises(CheckError, match="cannot be read"):
        read_baseline("none.json")
    with pytest.raises(CheckError, match="cannot be written"):
        write_baseline("no/such/folder.json", [], line_of(SOURCE))
    Path("folder.json").mkdir()
    with pytest.raises(CheckError, match="cannot be written"):
        write_baseline("folder.json", [], line_of(SOURCE))
    assert [path.name for path in Path.cwd().iterdir()] == ["folder.json"]
