import pytest

from instep.rules import clip_after_step as rule
from instep.trace import Opaque
from tests.rules.lines import MANAGED, O, backward, clip, judged, one, step, zero


@pytest.mark.parametrize("times", [1, 3])
def test_after_the_step(times):
    severity, message = judged(rule, *[zero(), backward(), step(), clip()] * times)[20]
    assert severity == "error"
    assert message == "the clip comes after the step, so no update of `optimizer` is clipped."


def test_after_the_step_and_the_clear():
    assert judged(rule, *[backward(), step(), zero(), clip()] * 2).keys() == {20}


def test_before_the_backward():
    message = judged(rule, *[zero(), clip(), backward(), step()] * 2)[20][1]
    assert "comes before the backward" in message
    assert judged(rule, clip(), backward(), step()).keys() == {20}


def test_behind_the_gate_but_too_late():
    window = [backward(), backward(), step(), clip(), zero()]
    assert judged(rule, *window * 2).keys() == {20}


def test_useless_for_both_optimizers():
    both = ("a", "b")
    events = [
        backward(10, both),
        step(30, "a"),
        step(31, "b"),
        clip(optimizers=both),
        zero(40, both),
    ]
    assert judged(rule, *events * 2).keys() == {20}


def test_the_evidence():
    finding = one(rule, backward(), step(), clip())
    assert [e.kind for e in finding.evidence] == ["clip", "backward", "step"]
    assert {r.place.line for r in finding.related} == {10, 30}


BOTH = ("a", "b")


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([zero(), backward(), clip(), step()] * 3, id="right"),
        pytest.param([clip(), step(), zero(), backward()] * 3, id="backward at the end"),
        pytest.param([clip(), step(), zero()], id="backward elsewhere"),
        pytest.param([clip(), step(), zero()] * 2, id="backward elsewhere, twice"),
        pytest.param([backward(), step(), clip(limit=float("inf"))] * 2, id="measured"),
        pytest.param([backward(), step(), clip(optimizers=None)] * 2, id="unknown clip"),
        pytest.param([backward(), step(), Opaque(O, "f"), clip()] * 2, id="opaque"),
        pytest.param([backward(), step(), backward(optimizers=None), clip()], id="unknown loss"),
        pytest.param([MANAGED, *[backward(), step(), clip()] * 2], id="managed"),
        pytest.param([backward(), clip(19), step(), clip()] * 2, id="clipped in time too"),
        pytest.param(
            [backward(10, BOTH), step(30, "a"), clip(optimizers=BOTH), step(31, "b")] * 2,
            id="in time for one",
        ),
        pytest.param([backward(), clip(), backward(), clip(), step(), clip()], id="inside too"),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}
