import pytest

from instep.rules import scaler_bypassed as rule
from instep.trace import Assumed, Backward, Created, GradEdited, Opaque
from tests.rules.lines import (
    ADAM,
    MANAGED,
    SCALER,
    O,
    backward,
    judged,
    one,
    scaled,
    scaler_step,
    step,
    unscale,
    update,
    zero,
)
from tests.rules.mends import candidates

WINDOW = [zero(), scaled(), step(), update()]


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        ({"type": "torch.optim.SGD", "written": True}, "error"),
        ({"type": "SGD", "written": True}, "error"),
        ({"type": "optim.AdamW", "written": True}, "error"),
        ({"type": "torch.optim.SGD"}, "warning"),
        ({"type": "apex.optimizers.Adam", "written": True}, "warning"),
        ({"type": "FP16_Optimizer", "written": True}, "warning"),
        ({}, "warning"),
    ],
)
def test_a_plain_step(facts, severity):
    made = Created("optimizer", "optimizer", facts)
    found = judged(rule, made, SCALER, *WINDOW * 2)
    assert found.keys() == {30}
    assert found[30][0] == severity
    assert "`optimizer` steps on gradients that are still multiplied" in found[30][1]


def test_unscaled_by_hand():
    severity, message = judged(rule, ADAM, SCALER, scaled(), unscale(), step(), update())[30]
    assert severity == "warning"
    assert message == "`optimizer` steps without the scaler, so infinite gradients are not skipped."


def test_the_evidence():
    finding = one(rule, ADAM, SCALER, scaled(), unscale(), step())
    assert [e.kind for e in finding.evidence] == ["step", "backward", "unscale"]
    assert {r.place.line for r in finding.related} == {10, 15}


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([SCALER, scaled(), scaler_step(), update()], id="right"),
        pytest.param([SCALER, backward(scaled=False), step()], id="not scaled"),
        pytest.param([SCALER, backward(scaled=None), step()], id="unknown"),
        pytest.param([SCALER, scaled(), backward(11, scaled=False), step()], id="another's loss"),
        pytest.param([SCALER, scaled(), zero(), step()], id="cleared"),
        pytest.param([scaled(), step()], id="apex"),
        pytest.param([Created("scaler", "scaler", {"enabled": False}), scaled(), step()], id="off"),
        pytest.param([SCALER, MANAGED, scaled(), step()], id="managed"),
        pytest.param([SCALER, scaled(), Opaque(O, "f"), step()], id="opaque"),
        pytest.param([SCALER, scaled(), GradEdited(O), step()], id="divided by hand"),
        pytest.param([SCALER, scaled(), step(closure=True)], id="closure"),
        pytest.param(
            [SCALER, scaled(), unscale(), Assumed("torch.isfinite(norm)", holds=True), step()],
            id="checked by hand",
        ),
    ],
)
def test_silent(events):
    assert judged(rule, ADAM, *events) == {}


WINDOW_OF_STEPPER = Created("loss", "loss", {"window": True})
OURS = Created("job", "job", {"source": "check", "managed": "instep"})


def test_a_window_of_a_stepper_is_given_a_scaled_loss():
    finding = one(rule, OURS, SCALER, WINDOW_OF_STEPPER, scaled(), Opaque(None, "w"))
    assert "a window of instep's Stepper, which does not undo that" in finding.message
    assert judged(rule, OURS, SCALER, WINDOW_OF_STEPPER, backward()) == {}
    off = Created("scaler", "scaler", {"enabled": False})
    assert judged(rule, OURS, off, WINDOW_OF_STEPPER, scaled()) == {}


def test_the_scaler_is_taken_out_of_the_call():
    text = "window.backward(scaler.scale(loss / 2), items=len(y))\n"
    mended = candidates(
        "scaler_bypassed", text, (lambda place: Backward(O, place=place), text.strip())
    )
    assert mended == ["window.backward(loss / 2, items=len(y))\n"]
