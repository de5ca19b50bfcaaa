import pytest

from instep.rules import double_unscale as rule
from instep.trace import Created, Opaque, ScalerUpdate, Unscale
from tests.rules.lines import (
    MANAGED,
    SCALER,
    O,
    at,
    judged,
    one,
    scaled,
    scaler_step,
    unscale,
    update,
    zero,
)

END = [scaler_step(), update(), zero()]


def test_twice_before_the_step():
    severity, message = judged(rule, SCALER, *[scaled(), unscale(15), unscale(16), *END] * 2)[16]
    assert severity == "error"
    assert message == (
        "the gradients of `optimizer` are unscaled twice for one update, "
        "which raises where `scaler` is enabled."
    )


def test_at_every_micro_batch():
    finding = one(rule, SCALER, scaled(), unscale(), scaled(), unscale(), *END)
    assert finding.place.line == 15
    assert "unscaled at every micro-batch for one update" in finding.message
    assert [e.kind for e in finding.evidence] == ["unscale", "unscale", "backward"]


def test_two_updates_with_one_scaler_update():
    window = [scaled(), unscale(), scaler_step()]
    assert judged(rule, SCALER, *window * 2, update()).keys() == {15}


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([SCALER, *[scaled(), unscale(), *END] * 2], id="right"),
        pytest.param(
            [SCALER, unscale(15, "d"), scaler_step(30, "d"), unscale(16, "g"), *END],
            id="two optimizers",
        ),
        pytest.param([SCALER, *[scaled(), unscale(), scaler_step()] * 2], id="never updated"),
        pytest.param([SCALER, unscale(15), Opaque(O, "f"), unscale(16), *END], id="opaque"),
        pytest.param([SCALER, unscale(15), ScalerUpdate(None), unscale(16), *END], id="unknown"),
        pytest.param([SCALER, *[at(15, Unscale(None, "scaler"))] * 2, *END], id="unknown whose"),
        pytest.param([SCALER, *[at(15, Unscale("optimizer"))] * 2, *END], id="unknown by whom"),
        pytest.param([SCALER, MANAGED, unscale(15), unscale(16), *END], id="managed"),
        pytest.param(
            [Created("scaler", "scaler", {"enabled": False}), unscale(15), unscale(16), *END],
            id="off",
        ),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}
