import ast

import pytest

from instep.check.execute.numbers import compute, key, number
from instep.check.execute.ticks import Mod, Tick
from instep.check.execute.values import COUNT, Unknown
from tests.check.execute.run import SETUP, evaluated, executed


def test_names_that_count_are_numbers():
    assert number(Unknown("k", "args.accum_steps")) == COUNT
    assert number(Unknown("k", "args.lr")) is None
    assert number(True) is True
    assert number("3") is None


def test_what_was_taken_for_a_number_is_one():
    value = Unknown("k", "n")
    value.count = 5
    assert number(value) == 5


@pytest.mark.parametrize(
    ("kind", "one", "two", "expected"),
    [
        (ast.Add, 1, 2, 3),
        (ast.Div, 1, 4, 0.25),
        (ast.Div, 1, 0, None),
        (ast.Pow, 2, 1000, None),
        (ast.Mult, 1 << 60, 1 << 60, None),
        (ast.LShift, 1, 2, None),
    ],
)
def test_computing(kind, one, two, expected):
    assert compute(kind, one, two) == expected


def test_differences_count():
    assert isinstance(compute(ast.Sub, 5, 2), Tick)


def test_a_remainder_remembers_its_divisor():
    rest = evaluated("(i + 1) % 4", "i = 5")
    assert isinstance(rest, Mod)
    assert (rest, rest.every, rest.written) == (2, 4, "literal")
    rest = evaluated("5 % steps")
    assert (rest.every, rest.written) == (COUNT, "nowhere")


def test_rare_things_happen_in_the_few_iterations_that_are_run():
    rest = evaluated("i % 1000", "i = 3")
    assert (int(rest), rest.every) == (1, 1000)


def test_an_unknown_counter_counts_by_itself():
    m, scope = executed("")
    node = ast.parse("count % 4", mode="eval").body
    assert [int(m.ev(node, scope)) for _ in range(4)] == [1, 2, 3, 0]


def test_the_same_operation_gives_the_same_unknown():
    _, scope = executed("a = x + 1\nb = x + 1\nc = x + 2")
    assert scope.names["a"] is scope.names["b"]
    assert scope.names["a"] is not scope.names["c"]


def test_one_over_something_knows_it():
    made = evaluated("1 / steps")
    assert made.inverse.known_as == "steps"


def test_containers_are_joined():
    assert evaluated("[1] + [2]").items == [1, 2]
    assert evaluated("(1,) + (2,)") == (1, 2)
    assert evaluated("'a' + 'b'") == "ab"
    both = evaluated("list(model.parameters()) + list(head.parameters())", SETUP)
    assert {net.known_as for net in both.nets} == {"model", "head"}


def test_keys_tell_values_apart():
    assert key(Unknown("3:4")) == "3:4"
    assert key(1) != key("1")
