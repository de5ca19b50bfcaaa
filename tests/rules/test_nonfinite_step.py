from instep.rules import nonfinite_step as rule
from instep.trace import Measured
from tests.rules.lines import O, at, judged


def broken(count):
    return at(30, Measured(O, "nonfinite-updates", float(count), "updates"))


def test_updates_that_were_not_finite():
    severity, message = judged(rule, broken(1))[30]
    assert severity == "error"
    assert message.startswith("`optimizer` has made an update with gradients that are not finite")
    assert "has made 1,200 updates with" in judged(rule, broken(1200))[30][1]


def test_what_was_not_counted():
    least = Measured(O, "nonfinite-updates", 1.0, "updates at least")
    assert "has made at least one update with" in judged(rule, at(30, least))[30][1]


def test_weights_that_a_job_leaves():
    left = Measured(O, "nonfinite-weights", 2.0, "parameters", "m.weight, m.bias")
    severity, message = judged(rule, at(30, left))[30]
    assert severity == "error"
    assert message.startswith("`m.weight, m.bias` of `optimizer` are infinite or NaN when")


def test_none():
    assert judged(rule, broken(0)) == {}
