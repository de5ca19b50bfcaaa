import pytest

from instep.check.execute.arguments import Call
from instep.check.execute.values import Unknown
from tests.check.execute.run import executed, value


@pytest.mark.parametrize(
    ("signature", "call", "expected"),
    [
        ("a, b=2", "1", (1, 2)),
        ("a, b=2", "1, b=3", (1, 3)),
        ("a, /, b", "1, 2", (1, 2)),
        ("a, *, b=5", "1", (1, 5)),
        ("a, b", "*(1, 2)", (1, 2)),
        ("a, b", "**{'a': 1, 'b': 2}", (1, 2)),
        ("a, *b", "1, 2, 3", (1, (2, 3))),
    ],
)
def test_parameters_take_arguments(signature, call, expected):
    assert value(f"def f({signature}):\n    return a, b\nv = f({call})") == expected


def test_the_rest_by_name_is_a_dict():
    made = value("def f(a, **b):\n    return b\nv = f(1, c=2, d=3)")
    assert (made.items, made.exact) == ({"c": 2, "d": 3}, True)
    assert not value("def f(**b):\n    return b\nv = f(**more)").exact


def test_a_parameter_without_a_value_is_unknown():
    assert isinstance(value("def f(a):\n    return a\nv = f()"), Unknown)
    assert isinstance(value("def f(a=1):\n    return a\nv = f(**more)"), Unknown)


def test_defaults_are_those_of_the_definition():
    assert value("n = 3\ndef f(a=n):\n    return a\nv = f()") == 3


def test_a_call_finds_its_arguments_by_place_or_name():
    _, scope = executed("")
    call = Call(scope.module.tree, scope, "f", [1], {"b": 2})
    assert (call.get(0, "a"), call.get(1, "b"), call.get(2, "c", 9)) == (1, 2, 9)
    assert (call.first, call.inputs) == (1, [1, 2])
    assert Call(scope.module.tree, scope).first is None
