from dataclasses import replace

from hypothesis import given

from instep.reports.cards import cards
from instep.reports.record import Record
from instep.rules import Finding, Related, Severity
from instep.trace import Place
from tests.reports.jobs import EVIL, at, evil, small
from tests.reports.kit import cases


def test_a_card_has_everything():
    html = cards(small())
    assert '<span class="badge">error</span>' in html
    assert '<span class="code">INS201</span> unscaled-accumulation' in html
    assert '<span class="where">train.py:12</span>' in html
    assert "the update of <code>optimizer</code> is 2 times the mean." in html
    assert "<code>    <mark>loss.backward()</mark></code>" in html
    assert '<mark>optimizer.step()</mark></code><span class="label">stepped here</span>' in html
    assert "What to do" in html
    assert "Divide the loss by the number of micro-batches" in html
    assert "<code>instep explain unscaled-accumulation</code>" in html


def test_lines_around_are_shown_and_gaps_marked():
    html = cards(small())
    for number in range(10, 17):
        assert f'<span class="no">{number}</span>' in html
    assert "row gap" not in html
    far = replace(small().findings[0], related=(Related(at(40), "far away"),))
    quotes = {far.place.path: {**small().quotes[far.place.path], 40: "far = 1"}}
    assert "row gap" in cards(small(findings=(far,), quotes=quotes))


def test_the_worst_comes_first():
    (error,) = small().findings
    info = replace(error, severity=Severity.INFO, place=at(10))
    warning = replace(error, severity=Severity.WARNING, place=at(11))
    html = cards(small(findings=(info, warning, error)))
    order = [html.index(f'<span class="badge">{word}') for word in ("error", "warning", "info")]
    assert order == sorted(order)


def test_lines_that_are_not_at_hand_are_named():
    html = cards(small(quotes={}))
    assert "excerpt" not in html
    assert "<li>stepped here: <code>train.py:15</code></li>" in html


def test_lines_of_another_file_stand_under_its_name():
    other = Place("/home/me/model.py", 3)
    finding = replace(small().findings[0], related=(Related(other, "made here"),))
    quotes = {**small().quotes, other.path: {3: "head = Linear()"}}
    html = cards(small(findings=(finding,), quotes=quotes))
    assert '<div class="file">model.py</div>' in html


def test_what_is_advised_for_this_finding_is_the_one_advice():
    finding = replace(small().findings[0], advice="Sum `loss` & divide.")
    html = cards(small(findings=(finding,)))
    assert "<h4>What to do</h4><p>Sum <code>loss</code> &amp; divide.</p>" in html
    assert "Divide the loss by the number" not in html


def test_a_finding_of_no_rule_has_no_advice():
    finding = Finding("INS999", "new", Severity.INFO, at(12), "something.", condition="x is None")
    html = cards(small(findings=(finding,)))
    assert "What to do" not in html
    assert "when x is None" in html


def test_harm_is_escaped():
    html = cards(evil())
    assert "&lt;/script&gt;" in html
    assert "<script" not in html
    assert "<img" not in html
    assert EVIL not in html


@given(cases())
def test_any_finding_can_be_shown(case):
    files, found = case
    quotes = {
        path: dict(enumerate(text.split("\n"), start=1))
        for path, text in files.items()
        if isinstance(path, str)
    }
    html = cards(Record(title="", findings=tuple(found), quotes=quotes))
    assert html.count("<article") == len(found)
    assert "\x1b" not in html
