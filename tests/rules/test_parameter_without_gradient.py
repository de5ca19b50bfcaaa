from instep.rules import parameter_without_gradient as rule
from instep.trace import Measured, Rebound
from tests.rules.lines import O, at, judged


def gauge(quantity, count, names):
    return at(30, Measured(O, quantity, float(count), "parameters", names))


MISSING = gauge("gradients-missing", 3, "a.weight, a.bias, b.weight")


def test_parts_that_are_not_used_are_an_information():
    severity, message = judged(rule, MISSING)[30]
    assert severity == "info"
    assert message == (
        "3 parameters have never had a gradient (a.weight, a.bias, b.weight), so `optimizer` does "
        "not train them."
    )


def test_a_part_that_is_used_and_cut_off_is_a_warning():
    severity, message = judged(rule, MISSING, gauge("gradients-cut-off", 1, "b.weight"))[30]
    assert severity == "warning"
    assert message.startswith("1 parameter is used and has never had a gradient (b.weight)")
    assert message.endswith("does not train it.")


def test_another_optimizer_is_another_matter():
    other = at(40, Measured(("other",), "gradients-cut-off", 1.0, "parameters", "c"))
    assert [severity for severity, _ in judged(rule, MISSING, other).values()] == ["info"]


def test_parameters_that_were_replaced_are_another_rules():
    assert judged(rule, Rebound("model.head", parameters=True), MISSING) == {}
