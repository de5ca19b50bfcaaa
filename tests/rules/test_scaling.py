import pytest

from instep.rules.scaling import may_scale, scaler_of
from instep.rules.view import View
from instep.trace import Created, Trace, windows
from tests.rules.lines import scaled, scaler_step, step, unscale


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, True),
        ({"enabled": True}, True),
        ({"enabled": None}, True),
        ({"enabled": False}, False),
        ({"type": "apex.amp.scaler.LossScaler"}, False),
    ],
)
def test_a_scaler_may_be_at_work(facts, expected):
    view = View(Trace([Created("scaler", "scaler", facts)]))
    assert may_scale(view, "scaler") is expected
    assert may_scale(view, None) is expected


def test_without_a_scaler_nothing_scales():
    assert not may_scale(View(Trace([scaled(), step()])), None)


def test_the_scaler_of_a_window():
    def of(*events):
        return scaler_of(windows(events)["optimizer"][0])

    assert of(scaled(), scaler_step()) == "scaler"
    assert of(scaled(), unscale(), step()) == "scaler"
    assert of(scaled(), step()) is None
