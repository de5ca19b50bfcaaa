import pytest

from instep.rules import replaced_parameters as rule
from instep.trace import Created, Opaque, Rebound
from tests.rules.lines import at, backward, judged, one, step, zero

MODEL = at(1, Created("model", "model"))
HEAD = at(5, Rebound("model.fc", "model", "model.fc#2", parameters=True))
LOOP = [zero(), backward(models=("model",)), step()] * 2


def optimizer(*models, name="optimizer"):
    return at(3, Created(name, "optimizer", {"models": models}))


def test_a_layer():
    severity, message = judged(rule, MODEL, optimizer("model"), HEAD, *LOOP)[5]
    assert severity == "error"
    assert message == (
        "`model.fc` is replaced after `optimizer` was made, which goes on updating the old "
        "parameters: the new ones are never trained."
    )


def test_a_layer_that_is_frozen():
    frozen = Created("model.fc#2", "model", {"frozen": True})
    assert judged(rule, MODEL, frozen, optimizer("model"), HEAD, *LOOP) == {}
    other = Created("model.conv", "model", {"frozen": True})
    assert judged(rule, MODEL, other, optimizer("model"), HEAD, *LOOP).keys() == {5}


def test_the_whole_model():
    again = at(5, Rebound("model", "model", "model#2", parameters=True))
    loop = [backward(optimizers=(), models=("model#2",)), step()]
    severity, message = judged(rule, MODEL, optimizer("model"), again, *loop)[5]
    assert severity == "warning"
    assert message.startswith("`model` is replaced after `optimizer` was made")
    assert judged(rule, MODEL, optimizer("model.fc"), again, *loop).keys() == {5}


def test_embeddings_of_new_tokens():
    resized = at(5, Rebound("model.embeddings", "model", parameters=True))
    severity, message = judged(rule, MODEL, optimizer("model"), resized, *LOOP)[5]
    assert severity == "warning"
    assert message.startswith("`model.embeddings` is replaced after `optimizer` was made")


def test_a_layer_that_is_parametrized_in_its_place():
    wrapped = at(5, Rebound("model.fc", "model.fc", parameters=True))
    severity, _ = judged(rule, MODEL, optimizer("model"), wrapped, *LOOP)[5]
    assert severity == "error"


def test_a_layer_that_is_replaced_again_and_again():
    turn = [zero(), HEAD, backward(models=("model",)), step()]
    severity, message = judged(rule, MODEL, optimizer("model"), *turn, *turn)[5]
    assert severity == "warning"
    assert message.startswith("`model.fc` is replaced after `optimizer` was made")
    other = at(6, Rebound("model.conv", "model", "model.conv#2", parameters=True))
    found = judged(rule, MODEL, optimizer("model"), HEAD, other, *LOOP)
    assert {line: severity for line, (severity, _) in found.items()} == {5: "error", 6: "error"}


def test_a_layer_of_a_model_with_a_number():
    layer = Created("model.fc#2", "model", {"part_of": "model#3"})
    again = at(5, Rebound("model.fc", "model#3", "model.fc#2", parameters=True))
    loop = [backward(models=("model#3",)), step()]
    severity, _ = judged(rule, layer, optimizer("model#3"), again, *loop)[5]
    assert severity == "error"


def test_a_model_of_several():
    again = at(5, Rebound("self.head", "self.head", "self.head#2", parameters=True))
    loop = [backward(models=("self.net", "self.head#2")), step()]
    assert judged(rule, optimizer("self.net", "self.head"), again, *loop).keys() == {5}


def test_another_optimizer_does_not_help():
    events = [optimizer("model"), HEAD, optimizer("other", name="b"), *LOOP]
    assert judged(rule, *events).keys() == {5}


def test_the_evidence():
    finding = one(rule, MODEL, optimizer("model"), HEAD, *LOOP)
    assert [e.kind for e in finding.evidence] == ["rebound", "created", "step"]
    assert {r.place.line for r in finding.related} == {3, 30}


MOVED = at(5, Rebound("model", "model", "model#2", parameters=False))
UNKNOWN = at(5, Rebound("model", "model", "model#2"))
FOLD = at(5, Rebound("model", "model", "model#2", parameters=True))
PART = Created("model.fc#2", "model", {"part_of": "model#2"})
NEXT = [backward(optimizers=("b",), models=("model#2",)), step(optimizer="b")]
FROZEN = Created("model.fc", "model", {"frozen": True})


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([HEAD, optimizer("model"), *LOOP], id="replaced first"),
        pytest.param([optimizer("model"), HEAD, optimizer("model"), *LOOP], id="made again"),
        pytest.param([optimizer("model"), HEAD, optimizer("model.fc", name="b"), *LOOP], id="two"),
        pytest.param([optimizer("model"), HEAD, optimizer("model.fc#2"), *LOOP], id="new group"),
        pytest.param(
            [optimizer("model"), HEAD, Created("b", "optimizer"), *LOOP], id="unknown optimizer"
        ),
        pytest.param([optimizer("model", "model.fc#2"), HEAD, *LOOP], id="known from the start"),
        pytest.param(
            [optimizer("model"), PART, optimizer("model.fc#2", name="b"), FOLD, *NEXT], id="parts"
        ),
        pytest.param([optimizer("model"), MOVED, *LOOP], id="moved"),
        pytest.param([optimizer("model"), UNKNOWN, *LOOP], id="unknown"),
        pytest.param([optimizer("other"), HEAD, *LOOP], id="not held"),
        pytest.param([optimizer("model.layer4"), HEAD, *LOOP], id="another layer is held"),
        pytest.param([Created("optimizer", "optimizer"), HEAD, *LOOP], id="unknown models"),
        pytest.param([optimizer("model"), HEAD, Opaque((), "f(optimizer)"), *LOOP], id="opaque"),
        pytest.param([optimizer("model"), HEAD, FROZEN, *LOOP], id="frozen"),
        pytest.param([optimizer("model"), *LOOP, HEAD], id="after the training"),
        pytest.param([optimizer("model"), HEAD, step()], id="no backward"),
        pytest.param([optimizer("model"), HEAD, backward(models=("b",)), step()], id="not used"),
        pytest.param([optimizer("model"), HEAD, backward(models=None), step()], id="unknown use"),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}
