from dataclasses import replace

import pytest

from instep.rules import clip_before_unscale as rule
from instep.trace import Created, GradEdited, Measured, Opaque, Unscale
from tests.rules.lines import (
    MANAGED,
    SCALER,
    O,
    backward,
    clip,
    judged,
    one,
    scaled,
    scaler_step,
    step,
    unscale,
    update,
    zero,
)

END = [scaler_step(), update(), zero()]


def test_never_unscaled():
    severity, message = judged(rule, SCALER, *[scaled(), clip(), *END] * 2)[20]
    assert severity == "error"
    assert "are clipped to 1 while they are still multiplied by the loss scale" in message


def test_unscaled_too_late():
    finding = one(rule, SCALER, scaled(), clip(limit=0.25), unscale(25), *END)
    assert "clipped to 0.25 while" in finding.message
    assert [e.kind for e in finding.evidence] == ["clip", "backward", "unscale", "step"]
    assert (25, "unscaled here, too late") in {(r.place.line, r.label) for r in finding.related}


def test_unscaled_for_another_optimizer():
    events = [scaled(), unscale(optimizer="other"), clip(limit=None), *END]
    assert "are clipped while" in judged(rule, SCALER, *events)[20][1]


def test_unscaled_before_more_was_added():
    """The unscaling of a window that was cleared does not count for the next one."""
    events = [scaled(), unscale(), zero(), scaled(), clip(), *END]
    assert judged(rule, SCALER, *events).keys() == {20}


def test_a_plain_step_does_not_hide_it():
    assert judged(rule, SCALER, scaled(), clip(), step()).keys() == {20}


SCALE = Measured(None, "loss-scale", 65536.0, "times", "scaler")
OFF = Created("scaler", "scaler", {"enabled": False})


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([SCALER, *[scaled(), unscale(), clip(), *END] * 2], id="right"),
        pytest.param([SCALER, scaled(), scaled(), unscale(), clip(), *END], id="accumulated"),
        pytest.param([SCALER, backward(scaled=False), clip(), step()], id="not scaled"),
        pytest.param([SCALER, backward(scaled=None), clip(), *END], id="unknown"),
        pytest.param([OFF, scaled(), clip(), *END], id="switched off"),
        pytest.param([scaled(), clip(), step()], id="apex"),
        pytest.param([SCALER, MANAGED, scaled(), clip(), *END], id="managed"),
        pytest.param([SCALER, scaled(), Opaque(O, "f"), clip(), *END], id="opaque"),
        pytest.param([SCALER, scaled(), GradEdited(O), clip(), *END], id="divided by hand"),
        pytest.param([SCALER, scaled(), Unscale(None), clip(), *END], id="unscaled, unknown whose"),
        pytest.param([SCALER, scaled(), clip(limit=float("inf")), *END], id="measured"),
        pytest.param(
            [SCALER, scaled(), replace(clip(limit=None), scaled=True), *END], id="limit scaled"
        ),
        pytest.param(
            [SCALER, scaled(), clip(limit=65536.0), *END, SCALE], id="a limit like the scale"
        ),
        pytest.param([SCALER, scaled(), clip(optimizers=None), *END], id="unknown clip"),
        pytest.param([SCALER, scaled(), *END, clip()], id="after the clear"),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}


def test_a_running_job_has_the_scale():
    events = [SCALER, scaled(), clip(), scaler_step(), update()]
    assert judged(rule, *events, SCALE)[20][1] == (
        "this clip saw gradients of `optimizer` that are up to 65,536× too large: they are "
        "still multiplied by the loss scale."
    )
    # It may have become another one since: what is told stays the same.
    latest = Measured(None, "loss-scale", 8192.0, "times", "scaler")
    most = Measured(None, "loss-scale-at-most", 65536.0, "times", "scaler")
    assert judged(rule, *events, latest, most) == judged(rule, *events, SCALE)
    one = Measured(None, "loss-scale", 1.0, "times", "scaler")
    assert judged(rule, *events, one) == judged(rule, *events)
