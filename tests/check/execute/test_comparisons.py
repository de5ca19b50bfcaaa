import pytest

from instep.check.execute.decisions import Undecided
from instep.check.execute.machine import truth
from instep.check.execute.values import Gate
from tests.check.execute.run import SETUP, evaluated, executed, once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 == 1", True),
        ("1 != 1", False),
        ("2 >= 3", False),
        ("'a' == 'b'", False),
        ("None is None", True),
        ("None is not None", False),
        ("3 is None", False),
        ("3 == None", False),
        ("model is not None", True),
        ("'a' in ('a', 'b')", True),
        ("'c' not in ['a']", True),
        ("'a' in 'abc'", True),
        ("x in []", False),
    ],
)
def test_what_is_known(text, expected):
    assert evaluated(text, "model = torch.nn.Linear(1, 1)") is expected


@pytest.mark.parametrize("text", ["x < 3", "x is None", "x in names", "x == y", "x is y"])
def test_what_hangs_on_a_decision(text):
    assert isinstance(evaluated(text), Undecided)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x < y", "y > x", True),
        ("x <= y", "y < x", False),
        ("x == y", "x != y", False),
        ("flag", "flag == True", True),
        ("flag", "flag == False", False),
        ("x is not None", "x", True),
    ],
)
def test_one_decision_for_one_condition(one, other, same):
    _, scope = executed(f"a = {one}\nb = {other}")
    a, b = truth(scope.names["a"]), truth(scope.names["b"])
    assert a.key == b.key
    assert (a.positive == b.positive) is same


def test_a_remainder_is_compared_as_a_gate():
    gate = evaluated("(i + 1) % 4 == 0", "i = 3")
    assert isinstance(gate, Gate)
    assert (gate.holds, gate.every, gate.written) == (True, 4, "literal")


def test_a_counter_that_the_branch_resets_is_a_gate():
    source = """
count = 0
for x, y in loader:
    model(x).sum().backward()
    count += 1
    if count >= 2:
        optimizer.step()
        RESET
"""
    with_reset = SETUP + source.replace("RESET", "count = 0")
    assert once(with_reset, "step") == [("step", "optimizer", 2)]
    assert once(SETUP + source.replace("RESET", "pass"), "step") == [("step", "optimizer", None)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type(loss) == float", False),
        ("type(loss) != float", True),
        ("int is type(loss)", False),
        ("type(loss) is not float", True),
        ("type(0.5) == float", True),
        ("type(0.5) == int", False),
        ("type(loss) is torch.Tensor", True),
        ("type(loss) == type(loss)", True),
        ("type(loss) in (int, float)", False),
        ("type(loss) not in [int, float]", True),
        ("type(loss) in (float, torch.Tensor)", True),
    ],
)
def test_types(text, expected):
    assert evaluated(text, SETUP + "loss = model(x)") is expected


@pytest.mark.parametrize(
    "text",
    ["type(loss) == dict", "type(x) == float", "type(loss) in (float, dict)", "type(loss) in ks"],
)
def test_types_that_are_not_known(text):
    assert isinstance(evaluated(text, SETUP + "loss = model(x)"), Undecided)
