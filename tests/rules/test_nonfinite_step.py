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


def test_none():
    assert judged(rule, broken(0)) == {}
