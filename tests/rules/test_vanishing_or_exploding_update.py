import pytest

from instep.rules import vanishing_or_exploding_update as rule
from instep.trace import Measured
from tests.rules.lines import O, at, judged


def ratio(value, subject="model.weight"):
    return at(30, Measured(O, "update-ratio", value, "relative", subject))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (3e-9, "changes `model.weight` by 3.0e-09 of its size (median): it hardly learns."),
        (0.0, "by 0.0e+00 of its size"),
        (0.75, "by 75% of its size (median): it keeps little of what it has learnt."),
        (20.0, "by 2000% of its size"),
    ],
)
def test_out_of_proportion(value, says):
    severity, message = judged(rule, ratio(value))[30]
    assert severity == "warning"
    assert says in message


@pytest.mark.parametrize("value", [1e-6, 1e-3, 0.5])
def test_in_proportion(value):
    assert judged(rule, ratio(value)) == {}


def test_a_weight_without_a_name():
    assert "changes its largest weight by" in judged(rule, ratio(1.0, None))[30][1]
