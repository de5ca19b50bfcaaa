from instep.rules.view import View
from instep.trace import ScalerUpdate, Step, Trace
from tests.rules.lines import SCALER, step


def test_scalers_are_made_or_used():
    assert View(Trace([SCALER, ScalerUpdate("other"), step()])).scalers == {"scaler", "other"}
    assert View(Trace()).scalers == frozenset()


def test_what_several_rules_read_is_read_once():
    asked = []

    def count(view):
        asked.append(view)
        return len(view.events)

    view = View(Trace([SCALER, step()]))
    assert (view.read(count), view.read(count)) == (2, 2)
    assert asked == [view]


def test_the_kinds_of_events_that_there_are():
    view = View(Trace([step()]))
    assert Step in view.kinds
    assert ScalerUpdate not in view.kinds
