import json

from hypothesis import given
from hypothesis import strategies as st

from instep.reports import split_lines
from instep.reports.escape import encodable
from instep.reports.json_ import render
from instep.reports.positions import in_order
from instep.rules import Edit, Fix
from tests.reports.kit import LOOP, at, cases, edits, finding, plain, raw_controls, source_of, texts

KEYS = [
    *("code", "name", "severity", "path", "cell", "line", "column", "end_line", "end_column"),
    *("message", "condition", "fix", "related"),
]

GOLDEN = """\
[
  {
    "code": "INS101",
    "name": "missing-zero-grad",
    "severity": "error",
    "path": "train.py",
    "cell": null,
    "line": 5,
    "column": 5,
    "end_line": 5,
    "end_column": 21,
    "message": "no gradient is ever cleared, so each update adds up all batches.",
    "condition": "when scaler is not None",
    "fix": {
      "title": "clear the gradients after the step",
      "is_safe": true,
      "edits": [
        {
          "line": 5,
          "column": 21,
          "end_line": 5,
          "end_column": 21,
          "text": "\\n    zero()"
        }
      ]
    },
    "related": [
      {
        "path": "train.py",
        "cell": null,
        "line": 3,
        "column": 5,
        "end_line": 3,
        "end_column": 20,
        "label": "backward here"
      }
    ]
  }
]
"""


def test_golden():
    assert render([finding()], source_of({"train.py": LOOP})) == GOLDEN


def test_nothing_found_is_an_empty_list():
    assert render([], source_of({})) == "[]\n"


def test_notebooks_and_absent_parts():
    place = at(2, 0, 1, path="n.ipynb", cell=3)
    (shown,) = json.loads(render([plain(place=place)], source_of({("n.ipynb", 3): "a\nb"})))
    assert (shown["cell"], shown["line"]) == (3, 2)
    assert shown["fix"] is None
    assert shown["condition"] is None
    assert shown["related"] == []


def test_a_fix_whose_lines_cannot_be_read_has_no_edits():
    fix = Fix("f", (Edit(1, 0, 1, 0, "x"), Edit(9, 4, 9, 4, "y")), is_safe=False)
    (shown,) = json.loads(render([plain(fix=fix)], source_of({"train.py": LOOP})))
    assert shown["fix"] == {"title": "f", "is_safe": False, "edits": []}


@given(cases())
def test_valid_ascii_with_every_key_in_order_and_every_text_kept(case):
    files, found = case
    report = render(found, source_of(files))
    assert report.isascii()
    assert raw_controls(report) <= {"\n"}
    shown = json.loads(report)
    assert [list(each) for each in shown] == [KEYS] * len(found)
    report.encode().decode()
    assert [(each["code"], each["path"], each["message"]) for each in shown] == [
        tuple(map(encodable, (each.code, each.place.path, each.message)))
        for each in in_order(found)
    ]


def apply_characters(text, edit):
    """What a program does that reads the JSON and knows nothing of bytes."""
    lines = split_lines(text)
    start, end = edit["column"] - 1, edit["end_column"] - 1
    head = [*lines[: edit["line"] - 1], lines[edit["line"] - 1][:start]]
    tail = [lines[edit["end_line"] - 1][end:], *lines[edit["end_line"] :]]
    return "\n".join(head) + edit["text"] + "\n".join(tail)


def apply_bytes(text, edit):
    lines = [line.encode() for line in split_lines(text)]
    head = [*lines[: edit.line - 1], lines[edit.line - 1][: edit.column]]
    tail = [lines[edit.end_line - 1][edit.end_column :], *lines[edit.end_line :]]
    return (b"\n".join(head) + edit.text.encode() + b"\n".join(tail)).decode()


@given(st.data())
def test_edits_do_in_characters_what_they_did_in_bytes(data):
    text = encodable(data.draw(texts))
    change = data.draw(edits(text))
    change = Edit(
        change.line, change.column, change.end_line, change.end_column, encodable(change.text)
    )
    report = render([plain(fix=Fix("f", (change,)))], source_of({"train.py": text}))
    (shown,) = json.loads(report)
    assert apply_characters(text, shown["fix"]["edits"][0]) == apply_bytes(text, change)


def test_the_comparison_has_teeth():
    change = Edit(1, 2, 1, 2, "!")
    in_bytes = {"line": 1, "column": 3, "end_line": 1, "end_column": 3, "text": "!"}
    assert apply_characters("éa", in_bytes) != apply_bytes("éa", change) == "é!a"
