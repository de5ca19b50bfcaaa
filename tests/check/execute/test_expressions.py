import pytest

from instep.check.execute.tensors import Tensor
from instep.check.execute.values import DictValue, Gate, ListValue, Unknown
from tests.check.execute.run import SETUP, evaluated, executed, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", 3),
        ("'a'", "a"),
        ("(1, 'b')", (1, "b")),
        ("(1, *(2, 3))", (1, 2, 3)),
        ("1 + 2 * 3", 7),
        ("-2", -2),
        ("+2", 2),
        ("not 0", True),
        ("1 < 2 < 3", True),
        ("1 < 2 > 3", False),
        ("0 or 5", 5),
        ("1 and 0", 0),
        ("2 if 1 else 3", 2),
        ("(n := 4)", 4),
    ],
)
def test_what_is_written_is_computed(text, expected):
    assert evaluated(text) == expected


@pytest.mark.parametrize("text", ["f'{x}'", "x", "-x", "x @ y", "~x"])
def test_the_rest_is_unknown(text):
    assert isinstance(evaluated(text), Unknown)


def test_lists_and_sets_hold_their_elements():
    made = evaluated("[1, *[2, 3]]")
    assert (made.items, made.exact) == ([1, 2, 3], True)
    assert not evaluated("[1, *others]").exact
    assert not evaluated("[1, *kept, 2]", "kept = [*others]").exact
    assert isinstance(evaluated("{1}"), ListValue)


def test_dicts():
    made = evaluated("{'a': 1, **{'b': 2}}")
    assert (made.items, made.exact) == ({"a": 1, "b": 2}, True)
    assert not evaluated("{'a': 1, **more}").exact
    assert not evaluated("{key: 1}").exact
    assert isinstance(made, DictValue)


def test_a_gate_in_a_boolean_stays_one():
    gate = evaluated("i % 4 == 0 or False", "i = 8")
    assert isinstance(gate, Gate)
    assert (gate.holds, gate.every) == (True, 4)
    assert not evaluated("not i % 4", "i = 3").holds
    assert evaluated("not i % 4 == 1", "i = 3").holds


def test_or_gives_the_first_that_may_be_it():
    assert evaluated("given or 4", "given = None") == 4
    assert isinstance(evaluated("unknown or 4"), Unknown)


def test_an_unknown_choice_prefers_what_is_not_none():
    assert evaluated("None if flag else 3") == 3
    assert evaluated("3 if flag else None") == 3


def test_a_negated_loss_is_the_loss():
    made = value(SETUP + "loss = model(x).mean()\nv = -loss")
    assert isinstance(made, Tensor)
    assert made.reduction == "mean"


def test_attributes_of_unknowns_are_the_same_everywhere():
    _, scope = executed("a = args.lr\nb = args.lr")
    assert scope.names["a"] is scope.names["b"]
    assert scope.names["a"].known_as == "args.lr"


def test_what_is_awaited_is_itself():
    assert value("async def f(): ...\nv = [*(1, 2)]").items == [1, 2]
