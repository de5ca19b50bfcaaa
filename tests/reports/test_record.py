import json
from dataclasses import replace

import pytest

from instep.reports import render
from instep.reports.record import Record
from instep.trace import TraceFormatError
from tests.reports.jobs import PATH, evil, long, small


def plain(record):
    """What of a record can be compared: nan is not equal to itself."""
    return replace(record, lines={name: repr(points) for name, points in record.lines.items()})


@pytest.mark.parametrize("make", [small, long, evil])
def test_a_record_goes_through_json_and_back(make):
    record = make()
    again = Record.from_json(record.to_json())
    assert plain(again) == plain(record)
    assert again.to_json() == record.to_json()
    assert record.to_json().isascii()
    assert "\n" not in record.to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "trace"},
        {"version": 99},
        {"events": [{"kind": "no-such"}]},
        {"first": [[0.5, 99]]},
        {"latest": [[0.5, -1]]},
        {"findings": [{}]},
        {"optimizers": 3},
        {"quotes": []},
    ],
)
def test_what_is_no_record_is_refused(change):
    read = json.loads(small().to_json()) | change
    with pytest.raises(TraceFormatError, match=r"not a record|no event"):
        Record.from_json(json.dumps(read))


def test_half_a_record_is_refused():
    text = small().to_json()
    for end in (0, 1, len(text) // 2, len(text) - 1):
        with pytest.raises(TraceFormatError, match="cut short"):
            Record.from_json(text[:end])
    with pytest.raises(TraceFormatError):
        Record.from_json("[]")


def test_updates_are_the_steps_that_changed_something():
    assert small().updates == 1


def test_paths_below_the_folder_are_shown_without_it():
    record = small()
    assert record.shown(PATH) == "train.py"
    assert record.shown("/home/media.py") == "/home/media.py"
    assert replace(record, folder="/").shown("/train.py") == "/train.py"


def test_the_other_formats_read_a_record():
    record = small()
    (found,) = json.loads(render("json", record.findings, record.source))
    assert (found["code"], found["line"], found["column"]) == ("INS201", 12, 5)
    (result,) = json.loads(render("sarif", record.findings, record.source))["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 12, "startColumn": 5, "endLine": 12, "endColumn": 20}
    text = render("text", record.findings, record.source)
    assert "12 |     loss.backward()" in text
    assert "stepped here" in text
    assert record.source("elsewhere.py") is None
    assert record.source(PATH, 1) is None
