import pytest

from instep.rules import zero_fill as rule
from tests.rules.lines import backward, judged, step, zero


def test_filled():
    severity, message = judged(rule, *[zero(set_to_none=False), backward(), step()] * 2)[40]
    assert severity == "info"
    assert message.startswith("the gradients of `optimizer` are filled with zeros")


@pytest.mark.parametrize(
    "clear",
    [
        zero(),
        zero(set_to_none=None),
        zero(optimizers=(), set_to_none=False),
        zero(optimizers=None, set_to_none=False),
    ],
)
def test_silent(clear):
    assert judged(rule, clear, backward(), step()) == {}
