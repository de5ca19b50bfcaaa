import re

from hypothesis import given

from instep.reports.escape import visible
from instep.reports.github import escape_message, escape_property, render
from instep.reports.positions import in_order
from instep.rules import Related, Severity
from tests.reports.kit import LOOP, at, cases, finding, plain, raw_controls, source_of, texts

COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


def unescape(text):
    """As the runner does it; the percent sign last."""
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


def parse(line):
    command, properties, message = COMMAND.fullmatch(line).groups()
    pairs = dict(pair.split("=", 1) for pair in properties.split(","))
    return command, {name: unescape(text) for name, text in pairs.items()}, unescape(message)


def test_golden():
    assert render([finding()], source_of({"train.py": LOOP})) == (
        "::error file=train.py,line=5,col=5,endLine=5,endColumn=21,"
        "title=INS101 missing-zero-grad::"
        "no gradient is ever cleared, so each update adds up all batches."
        "%0Awhen scaler is not None"
        "%0Abackward here: line 3"
        "%0Afix: clear the gradients after the step\n"
    )


def test_escapes():
    place = at(1, 0, None, path="a,b:c%2C=d.py")
    report = render([plain(place=place, message="50 % :: lost, really")], source_of({}))
    assert report == (
        "::error file=a%2Cb%3Ac%252C=d.py,line=1,col=1,endLine=1,"
        "title=INS101 missing-zero-grad::50 %25 :: lost, really\n"
    )


def test_several_lines_have_no_columns():
    place = at(3, 4, 20, end_line=5)
    report = render([plain(place=place)], source_of({"train.py": LOOP}))
    assert ",line=3,endLine=5,title=" in report


def test_a_notebook_line_is_said_and_not_marked():
    place = at(5, 0, 4, path="n.ipynb", cell=3)
    other = Related(at(1, 0, 1, path="lib.py"), "cleared here")
    same = Related(at(2, 0, 1, path="n.ipynb", cell=1), "backward here")
    report = render([plain(place=place, message="m.", related=(other, same))], source_of({}))
    assert report == (
        "::error file=n.ipynb,title=INS101 missing-zero-grad::cell 3, line 5: m."
        "%0Acleared here: lib.py, line 1%0Abackward here: cell 1, line 2\n"
    )


def test_severities():
    commands = [
        render([plain(severity=severity)], source_of({})).split()[0] for severity in Severity
    ]
    assert commands == ["::notice", "::warning", "::error"]


@given(texts)
def test_escaping_is_reversible(text):
    assert unescape(escape_property(text)) == text
    assert not set(escape_property(text)) & set(":,\r\n")
    assert unescape(escape_message(text)) == text
    assert not set(escape_message(text)) & set("\r\n")


def test_the_inverse_has_teeth():
    late = "%0A".replace("\n", "%0A").replace("%", "%25").replace("%250A", "%0A")
    assert unescape(late) != "%0A"


@given(cases())
def test_one_command_a_finding_whatever_the_texts(case):
    files, found = case
    report = render(found, source_of(files))
    assert raw_controls(report) <= {"\n"}
    lines = report.split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(found)
    for line, each in zip(lines, in_order(found), strict=True):
        _, properties, message = parse(line)
        assert properties["file"] == visible(each.place.path)
        assert properties["title"] == visible(f"{each.code} {each.name}")
        assert message.split("\n")[0].endswith(visible(each.message))
        assert ("line" in properties) == (each.place.cell is None)
