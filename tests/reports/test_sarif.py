import copy
import json

import pytest
from hypothesis import given

from instep.reports import Options, RuleInfo
from instep.reports.sarif import render
from instep.rules import Edit, Fix, Related, Severity
from instep.trace import Place
from tests.reports.kit import LOOP, at, cases, finding, plain, raw_controls, source_of
from tests.reports.sarif_rules import check

RULES = (
    RuleInfo("INS101", "missing-zero-grad", "Nothing is cleared.", Severity.ERROR, "# Page {x}"),
    RuleInfo("INS602", "zero-fill", "Zeros are written.", Severity.INFO),
)


def log_of(*found, files=None, **options):
    report = render(found, source_of(files or {"train.py": LOOP}), Options(**options))
    log = json.loads(report)
    check(log)
    return log["runs"][0]


def physical(line, column, end_column, uri="train.py"):
    return {
        "artifactLocation": {"uri": uri},
        "region": {
            "startLine": line,
            "startColumn": column,
            "endLine": line,
            "endColumn": end_column,
        },
    }


def test_golden_result():
    (result,) = log_of(finding())["results"]
    assert result == {
        "ruleId": "INS101",
        "ruleIndex": 0,
        "level": "error",
        "message": {
            "text": "no gradient is ever cleared, so each update adds up all batches. "
            "(when scaler is not None)"
        },
        "locations": [{"physicalLocation": physical(5, 5, 21)}],
        "relatedLocations": [
            {
                "id": 1,
                "physicalLocation": physical(3, 5, 20),
                "message": {"text": "backward here"},
            }
        ],
        "fixes": [
            {
                "description": {"text": "clear the gradients after the step"},
                "artifactChanges": [
                    {
                        "artifactLocation": {"uri": "train.py"},
                        "replacements": [
                            {
                                "deletedRegion": physical(5, 21, 21)["region"],
                                "insertedContent": {"text": "\n    zero()"},
                            }
                        ],
                    }
                ],
                "properties": {"isSafe": True},
            }
        ],
    }


def test_golden_tool():
    run = log_of(plain(code="INS001", name="syntax-error"), rules=RULES, version="1.2.3")
    assert run["tool"]["driver"] == {
        "name": "instep",
        "version": "1.2.3",
        "rules": [
            {
                "id": "INS101",
                "name": "missing-zero-grad",
                "shortDescription": {"text": "Nothing is cleared."},
                "defaultConfiguration": {"level": "error"},
                "help": {"text": "# Page {x}", "markdown": "# Page {x}"},
            },
            {
                "id": "INS602",
                "name": "zero-fill",
                "shortDescription": {"text": "Zeros are written."},
                "defaultConfiguration": {"level": "note"},
            },
            {"id": "INS001", "name": "syntax-error"},
        ],
    }
    assert run["results"][0]["ruleIndex"] == 2


def test_levels():
    run = log_of(*(plain(severity=severity, place=at(severity, 0, 1)) for severity in Severity))
    assert [result["level"] for result in run["results"]] == ["note", "warning", "error"]


def test_columns_are_utf16_units():
    line = "é損😀 = step()"
    start = len(line[: line.index("step")].encode())
    (result,) = log_of(plain(place=at(1, start, start + 4)), files={"train.py": line})["results"]
    assert result["locations"][0]["physicalLocation"] == physical(1, 8, 12)
    units = line.encode("utf-16-le")
    assert units[7 * 2 : 11 * 2].decode("utf-16-le") == "step"


def test_edits_are_in_utf16_units_too():
    fix = Fix("f", (Edit(1, 4, 1, 5, "x"),))
    (result,) = log_of(plain(place=at(1, 0, 4), fix=fix), files={"train.py": "😀a"})["results"]
    (replacement,) = result["fixes"][0]["artifactChanges"][0]["replacements"]
    assert replacement["deletedRegion"] == physical(1, 3, 4)["region"]


def test_without_the_source_there_are_whole_lines_and_no_fix():
    fix = Fix("f", (Edit(7, 4, 7, 4, "x"),))
    place = at(7, 4, 9, path="gone.py")
    (result,) = log_of(plain(place=place, fix=fix))["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 7, "endLine": 7}
    assert "fixes" not in result


def test_a_notebook_says_its_cell_and_carries_no_fix():
    place = at(5, 0, 4, path="n.ipynb", cell=3)
    fix = Fix("f", (Edit(5, 0, 5, 0, "x"),))
    related = (Related(at(1, 0, 1, path="n.ipynb", cell=2), "backward here"),)
    (result,) = log_of(plain(place=place, fix=fix, message="m.", related=related))["results"]
    assert result["message"]["text"] == "cell 3, line 5: m."
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert result["locations"][0]["logicalLocations"] == [{"name": "cell 3"}]
    assert result["relatedLocations"][0]["message"]["text"] == "cell 2, line 1: backward here"
    assert "fixes" not in result


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("src/train.py", "src/train.py"),
        ("./src/train.py", "src/train.py"),
        ("my models/é%.py", "my%20models/%C3%A9%25.py"),
        ("c:d/e.py", "c%3Ad/e.py"),
        ("/home/a b/t.py", "file:///home/a%20b/t.py"),
        ("latin-\udce9.py", "latin-%E9.py"),
        ("half-\ud800.py", "half-%ED%A0%80.py"),
    ],
)
def test_uris(path, uri):
    (result,) = log_of(plain(place=Place(path, 1)))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_messages_hold_no_links_and_no_arguments_by_accident():
    (result,) = log_of(plain(message="call losses[0](x) with {0} and a[1]"))["results"]
    assert result["message"]["text"] == "call losses\\[0](x) with {{0}} and a[1]"


@given(cases())
def test_the_structure_holds_whatever_the_texts(case):
    files, found = case
    report = render(found, source_of(files), Options(rules=RULES))
    assert report.isascii()
    assert raw_controls(report) <= {"\n"}
    log = json.loads(report)
    check(log)
    assert len(log["runs"][0]["results"]) == len(found)


def broken(log):
    """The same log, with one mistake in each."""
    region = "region", {"startLine": 0}
    backwards = "region", {"startLine": 2, "startColumn": 5, "endLine": 2, "endColumn": 4}
    for where, (key, wrong) in [
        (lambda result: result["locations"][0]["physicalLocation"], region),
        (lambda result: result["locations"][0]["physicalLocation"], backwards),
        (lambda result: result, ("level", "info")),
        (lambda result: result, ("ruleIndex", 1)),
        (lambda result: result["message"], ("text", "{0}")),
        (lambda result: result["message"], ("text", "[a](b)")),
        (lambda result: result["fixes"][0], ("artifactChanges", [])),
        (
            lambda result: result["locations"][0]["physicalLocation"]["artifactLocation"],
            ("uri", "a b.py"),
        ),
        (
            lambda result: result["locations"][0]["physicalLocation"]["artifactLocation"],
            ("uri", "c:d.py"),
        ),
    ]:
        changed = copy.deepcopy(log)
        where(changed["runs"][0]["results"][0])[key] = wrong
        yield changed


def test_the_structural_check_has_teeth():
    log = json.loads(render([finding()], source_of({"train.py": LOOP}), Options(rules=RULES)))
    check(log)
    count = 0
    for changed in broken(log):
        count += 1
        with pytest.raises(AssertionError):
            check(changed)
    assert count == 9
