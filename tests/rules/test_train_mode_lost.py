import pytest

from instep.rules import train_mode_lost as rule
from instep.trace import Created, Forward, Mode
from tests.rules.lines import at, backward, judged, one, step, zero


def train(line=5, function="train"):
    return at(line, Mode("model", training=True), function)


def evaluate(line=70, function="train"):
    return at(line, Mode("model", training=False), function)


def batch(training, line=8, function="train", **more):
    forward = at(line, Forward("model", training), function)
    return [zero(), forward, backward(models=("model",), **more), step()]


def test_the_second_epoch():
    made = Created("model", "model", {"moded": True})
    epochs = [train(), *batch(True), evaluate(), *batch(False) * 2]
    severity, message = judged(rule, made, *epochs)[70]
    assert severity == "warning"
    assert message.startswith("`model` is still in eval mode when training goes on")


def test_nobody_knows_whether_the_model_notices():
    epochs = [train(), *batch(True), evaluate(), *batch(False) * 2]
    assert judged(rule, *epochs)[70][0] == "info"
    job = Created("job", "job", {"source": "watch"})  # it has asked the model
    assert judged(rule, job, *epochs)[70][0] == "warning"


def test_a_new_model_is_in_train_mode():
    assert judged(rule, *batch(True), evaluate(), *batch(False)).keys() == {70}


def test_a_function_that_evaluates_first():
    events = [train(), evaluate(function="evaluate"), *batch(False)]
    assert judged(rule, *events).keys() == {70}


def test_the_same_line_beside_another_model():
    other = at(6, Mode("head", training=True), "train")
    events = [train(), other, *batch(True), evaluate(), other, *batch(False)]
    assert judged(rule, *events).keys() == {70}


def test_the_evidence():
    finding = one(rule, train(), *batch(True), evaluate(), *batch(False))
    assert [e.kind for e in finding.evidence] == ["mode", "mode", "forward", "backward", "step"]
    assert {(r.place.line, r.label) for r in finding.related} == {
        (5, "in train mode before"),
        (8, "trained in eval mode here"),
        (10, "backward here"),
    }


ATTACK = [
    evaluate(line=6),
    at(7, Forward("model", training=False), "attack"),
    backward(9, models=("model",)),
    train(),
]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*[train(), *batch(True), evaluate()] * 3], id="right"),
        pytest.param([evaluate(), *batch(False) * 3], id="in eval mode from the start"),
        pytest.param([train(), *batch(True), evaluate(), *batch(None)], id="unknown"),
        pytest.param([train(), *batch(True), evaluate(), *batch(True)], id="put back unseen"),
        pytest.param([*batch(True), *[*ATTACK, *batch(True)] * 2], id="attacked"),
        pytest.param([train(), *batch(True), evaluate(), *batch(False, line=80)], id="phase two"),
        pytest.param(
            [*[train(), *batch(True)] * 2, train(), evaluate(6), *batch(False)], id="chosen"
        ),
        pytest.param([train(), evaluate(), *batch(False)], id="chosen at once"),
        pytest.param(
            [
                *[train(), *batch(True), evaluate(function="evaluate")],
                at(30, Mode("head", training=True), "classify"),
                *batch(False, line=31, function="classify"),
            ],
            id="another model is named",
        ),
        pytest.param(
            [train(), *batch(True), evaluate(), *batch(False, optimizers=None)], id="unknown whose"
        ),
        pytest.param(
            [train(), *batch(True), evaluate(), at(8, Forward("model", training=False)), step()],
            id="no backward",
        ),
        pytest.param(
            [train(), *batch(True), at(70, Mode("model.bn", training=False)), *batch(True)],
            id="a layer",
        ),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}


def test_a_model_that_does_not_notice_the_mode():
    events = [*batch(True), evaluate(), *batch(False)]
    modeless = Created("model", "model", {"modeless": True})
    assert judged(rule, modeless, *events) == {}
    assert judged(rule, Created("model", "model", {"modeless": False}), *events).keys() == {70}
