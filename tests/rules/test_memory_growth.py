from instep.rules import memory_growth as rule
from instep.trace import Measured
from tests.rules.lines import at, judged


def test_graphs_that_are_kept():
    kept = at(10, Measured(None, "graphs-kept", 28.0, "graphs"))
    severity, message = judged(rule, kept)[10]
    assert severity == "warning"
    assert message.startswith("the graphs of 28 earlier backwards are still alive")


def test_other_measurements_mean_nothing():
    assert judged(rule, at(10, Measured(None, "graphs", 28.0, "graphs"))) == {}


def test_some_may_not_have_been_counted():
    kept = at(10, Measured(None, "graphs-kept", 64.0, "graphs at least"))
    assert judged(rule, kept)[10][1].startswith("the graphs of at least 64 earlier backwards")
