from instep.rules import low_precision_accumulation as rule
from instep.trace import Measured
from tests.rules.lines import O, at, judged


def error(value, subject="model.weight"):
    return at(30, Measured(O, "accumulation-error", value, "relative", subject))


def test_a_sum_that_is_off():
    severity, message = judged(rule, error(0.041))[30]
    assert severity == "warning"
    assert message.startswith("the sum of the gradients of `model.weight` is 4.1% off")
    assert "a parameter is 50.0% off" in judged(rule, error(0.5, None))[30][1]


def test_what_the_type_itself_costs_is_not_told():
    assert judged(rule, error(0.009)) == {}
    assert judged(rule, Measured(O, "accumulation-error", 0.5)) == {}  # nobody knows where
