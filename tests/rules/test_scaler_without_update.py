import pytest

from instep.rules import scaler_without_update as rule
from instep.trace import Created, Opaque, ScalerUpdate
from tests.rules.lines import (
    MANAGED,
    SCALER,
    O,
    judged,
    one,
    scaled,
    scaler_step,
    step,
    update,
    zero,
)

WINDOW = [zero(), scaled(), scaler_step()]


def test_never_updated():
    severity, message = judged(rule, SCALER, *WINDOW * 2)[30]
    assert severity == "error"
    assert message.startswith("`scaler` is never updated, so the second update raises")


def test_two_optimizers_miss_one_update_after_the_last_step():
    window = [scaled(10, ("d",)), scaler_step(30, "d"), scaled(11, ("g",)), scaler_step(31, "g")]
    assert judged(rule, SCALER, *window * 2).keys() == {31}


def test_the_update_of_another_scaler():
    assert judged(rule, SCALER, *[*WINDOW, ScalerUpdate("other")] * 2).keys() == {30}


def test_the_evidence():
    finding = one(rule, SCALER, *WINDOW * 2)
    assert {e.kind for e in finding.evidence} == {"step"}
    assert [(r.place.line, r.label) for r in finding.related] == [(10, "scaled here")]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([SCALER, *[*WINDOW, update()] * 2], id="right"),
        pytest.param([SCALER, *WINDOW], id="one step of a helper"),
        pytest.param([SCALER, *[*WINDOW, ScalerUpdate(None)] * 2], id="unknown update"),
        pytest.param([SCALER, *[*WINDOW, Opaque(None, "f()")] * 2], id="opaque"),
        pytest.param([SCALER, *[*WINDOW, Opaque(O, "f(optimizer)")] * 2], id="opaque optimizer"),
        pytest.param([SCALER, *[*WINDOW, Opaque((), "f(s)", ("scaler",))] * 2], id="opaque scaler"),
        pytest.param([Created("scaler", "scaler", {"enabled": False}), *WINDOW * 2], id="off"),
        pytest.param([SCALER, MANAGED, *WINDOW * 2], id="managed"),
        pytest.param([SCALER, *[scaled(), step()] * 2], id="bypassed"),
        pytest.param(
            [
                SCALER,
                *[scaler_step(30, "d"), scaler_step(31, "g"), update()] * 2,
            ],
            id="one update for two steps",
        ),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}
