from instep.rules.view import View
from instep.trace import ScalerUpdate, Trace
from tests.rules.lines import SCALER, step


def test_scalers_are_made_or_used():
    assert View(Trace([SCALER, ScalerUpdate("other"), step()])).scalers == {"scaler", "other"}
    assert View(Trace()).scalers == frozenset()
