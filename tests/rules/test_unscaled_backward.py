from dataclasses import replace

import pytest

from instep.rules import unscaled_backward as rule
from instep.trace import Created, GradEdited, Measured, Opaque
from tests.rules.lines import (
    MANAGED,
    SCALER,
    O,
    backward,
    judged,
    one,
    scaled,
    scaler_step,
    step,
    update,
    zero,
)

END = [scaler_step(), update(), zero()]


def plain(line=10, optimizers=O):
    return backward(line, optimizers, scaled=False)


def test_no_loss_is_scaled():
    severity, message = judged(rule, SCALER, *[plain(), *END] * 2)[10]
    assert severity == "error"
    assert "no loss goes through `scaler`, so its first step raises" in message


def test_the_loss_of_one_optimizer_is_not():
    gan = [
        plain(10, ("d",)),
        scaler_step(30, "d"),
        zero(40, ("g",)),
        scaled(11, ("d", "g")),
        scaler_step(31, "g"),
        update(),
        zero(41, ("d",)),
    ]
    found = judged(rule, SCALER, *gan * 2)
    assert found.keys() == {10}
    assert "the update of `d` is that many times too small" in found[10][1]


SCALE = Measured(None, "loss-scale", 64.0, "times", "scaler")


def test_a_running_job_says_what_comes_of_it():
    found = judged(rule, SCALER, *[plain(), *END] * 2, SCALE)
    assert found[10][1] == (
        "this loss does not go through `scaler`, which still divides its gradients by the loss "
        "scale: the update of `optimizer` is up to 64 times too small."
    )


def test_a_loss_that_a_running_job_scales_by_hand():
    by_hand = replace(plain(), factor=16.0, parts=(64.0, 0.25))
    unknown = replace(plain(), factor=None)  # the scale is another one all the time
    assert judged(rule, SCALER, by_hand, *END, unknown, *END, SCALE) == {}
    weighted = replace(plain(), factor=2.0, parts=(2.0,))
    assert judged(rule, SCALER, weighted, *END, SCALE).keys() == {10}


def other(line):
    return replace(plain(line), loss="other")


def test_one_of_two_losses_is_not():
    finding = one(rule, SCALER, scaled(), other(11), *END)
    assert finding.place.line == 11
    assert "beside the scaled ones it hardly counts" in finding.message
    assert [e.kind for e in finding.evidence] == ["backward", "step", "backward"]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([SCALER, *[scaled(), *END] * 2], id="right"),
        pytest.param([SCALER, scaled(), plain(11), *END], id="the same loss twice: torch raises"),
        pytest.param([SCALER, plain(), step()], id="no scaler in the step"),
        pytest.param([SCALER, backward(scaled=None), *END], id="unknown"),
        pytest.param([SCALER, plain(optimizers=None), *END], id="unknown whose"),
        pytest.param([Created("scaler", "scaler", {"enabled": False}), plain(), *END], id="off"),
        pytest.param([SCALER, MANAGED, plain(), *END], id="managed"),
        pytest.param([SCALER, plain(), Opaque(O, "f"), *END], id="opaque"),
        pytest.param([SCALER, plain(), GradEdited(O), *END], id="multiplied by hand"),
        pytest.param([SCALER, plain(), zero(), scaled(), *END], id="cleared before"),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}
