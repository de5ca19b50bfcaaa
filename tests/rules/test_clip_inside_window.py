import pytest

from instep.rules import clip_inside_window as rule
from instep.trace import Clip, Drawn, Opaque
from tests.rules.lines import MANAGED, O, at, backward, clip, judged, one, step, zero

MICRO = [Drawn("loader"), backward(), clip()]
LITERAL = {"every": 3, "every_written": "literal"}


def test_a_clip_at_every_micro_batch():
    window = [*MICRO * 3, step(**LITERAL), zero()]
    severity, message = judged(rule, *window, *window)[20]
    assert severity == "error"
    assert "of `optimizer` are clipped 3 times while they add up" in message


def test_a_made_up_number_is_not_said():
    (message,) = [m for _, m in judged(rule, *MICRO * 3, step(every=3)).values()]
    assert "clipped at every micro-batch while they add up" in message


def test_a_clip_before_the_last_backward_only():
    events = [backward(), clip(), backward(), step()]
    assert "is not clipped" in judged(rule, *events)[20][1]


def test_clip_before_each_backward():
    events = [clip(), backward(), clip(), backward(), step()]
    assert judged(rule, *events).keys() == {20}


def test_the_first_of_such_clips_meets_nothing():
    micro = [Drawn("loader"), clip(), backward()]
    window = [*micro * 3, step(**LITERAL), zero()]
    message = judged(rule, *window, *window)[20][1]
    assert "clipped 2 times while they add up, and never as a whole" in message
    message = judged(rule, *micro * 3, step(every=3))[20][1]
    assert "clipped at every micro-batch but the first" in message


def test_the_evidence():
    finding = one(rule, backward(), clip(), backward(), clip(), step())
    assert [e.kind for e in finding.evidence] == ["clip", "backward", "backward", "step"]
    assert {(r.place.line, r.label) for r in finding.related} == {
        (10, "more gradients are added here"),
        (30, "stepped here"),
    }


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([backward(), backward(), clip(), step(), zero()] * 2, id="at the close"),
        pytest.param([backward(), clip(), zero(), backward(), clip(), step()], id="cleared"),
        pytest.param([backward(), clip(limit=float("inf")), backward(), step()], id="measured"),
        pytest.param([backward(), clip(optimizers=None), backward(), step()], id="unknown clip"),
        pytest.param([backward(), clip(), Opaque(O, "f"), backward(), step()], id="opaque"),
        pytest.param([backward(), clip(), backward(optimizers=None), step()], id="unknown loss"),
        pytest.param([MANAGED, *MICRO * 2, step()], id="managed"),
        pytest.param(
            [backward(10), clip(11), backward(12), clip(13), step()], id="actor, then critic"
        ),
        pytest.param(
            [backward(models=("a",)), clip(), backward(models=("b",)), clip(), step()],
            id="a network after the other",
        ),
        pytest.param([backward(), Clip(O), backward(), step()], id="nowhere"),
        pytest.param(
            [at(9, Drawn("loader")), backward(), clip(), step(), zero()] * 4, id="no accumulation"
        ),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}


def test_only_the_clipped_optimizer_counts():
    both = ("a", "b")
    events = [backward(10, both), clip(optimizers=("a",)), step(30, "a"), backward(10, both)]
    assert judged(rule, *events, step(31, "b")) == {}
