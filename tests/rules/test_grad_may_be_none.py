import pytest

from instep.rules import grad_may_be_none as rule
from instep.trace import Created, GradEdited, GradRead, Opaque, WindowDiscarded
from tests.rules.lines import ADAM, O, at, backward, judged, one, step, zero

HELD = Created("optimizer", "optimizer", {**ADAM.facts, "models": ("model",)})
FROZEN = Created("model", "model", {"frozen": True})


def read(line=60, optimizers=O, parameter=None, *, guarded=False):
    return at(line, GradRead(optimizers, parameter, guarded))


def test_after_the_clear():
    severity, message = judged(rule, HELD, *[backward(), step(), zero(), read()] * 2)[60]
    assert severity == "warning"
    assert message == "the gradients of `optimizer` are None here: cleared, and not filled again."


def test_after_a_clear_that_may_fill():
    assert judged(rule, backward(), zero(set_to_none=None), read()).keys() == {60}


def test_before_the_first_backward():
    message = judged(rule, HELD, *[read(), backward(), step()] * 2)[60][1]
    assert message == (
        "the gradients of `optimizer` are None here: no backward has filled them yet."
    )


def test_of_a_frozen_model():
    events = [backward(), read(optimizers=None, parameter="model.layer1"), step()]
    message = judged(rule, FROZEN, ADAM, *events)[60][1]
    assert message == "`model` is frozen, so the gradients of its parameters are None."


def test_the_evidence():
    finding = one(rule, backward(), zero(), read())
    assert [e.kind for e in finding.evidence] == ["grad-read", "zero"]
    assert [(r.place.line, r.label) for r in finding.related] == [(40, "cleared here")]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([HELD, *[backward(), read(), step(), zero()] * 2], id="after the backward"),
        pytest.param([HELD, *[zero(), backward(), step(), read()] * 2], id="after the step"),
        pytest.param([ADAM, *[backward(), step(), zero(), read()] * 2], id="perhaps of copies"),
        pytest.param([backward(), zero(), read(guarded=True)], id="guarded"),
        pytest.param([backward(), zero(), read(guarded=None)], id="unknown guard"),
        pytest.param([backward(), zero(set_to_none=False), read()], id="filled with zeros"),
        pytest.param([backward(), zero(complete=False), read()], id="cleared in part"),
        pytest.param([backward(), zero(optimizers=None), read()], id="cleared, unknown whose"),
        pytest.param([read(), backward()], id="an optimizer from elsewhere"),
        pytest.param([backward(optimizers=("other",)), HELD, read()], id="filled for another"),
        pytest.param([HELD, read(), step()], id="whoever calls this has gone backward"),
        pytest.param([HELD, read(optimizers=None)], id="unknown whose"),
        pytest.param([HELD, backward(optimizers=()), read()], id="a copy of the model"),
        pytest.param([HELD, read(optimizers=())], id="of an image"),
        pytest.param([HELD, zero(), backward(optimizers=("b",)), read()], id="of a term, perhaps"),
        pytest.param([HELD, Opaque(O, "f"), read()], id="opaque"),
        pytest.param([HELD, backward(optimizers=None), read()], id="unknown loss"),
        pytest.param([HELD, GradEdited(O), read()], id="written by hand"),
        pytest.param([backward(), zero(), read(optimizers=("optimizer", "b"))], id="others too"),
        pytest.param([FROZEN, backward(), read(parameter="model2.layer")], id="another model"),
        pytest.param([FROZEN, Created("model", "model"), read(parameter="model.a")], id="thawed"),
        pytest.param([backward(), WindowDiscarded("optimizer"), read()], id="given up"),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}
