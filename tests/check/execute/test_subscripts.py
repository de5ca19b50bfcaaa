import pytest

from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Net
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, evaluated, executed, once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(1, 2)[1]", 2),
        ("(1, None)[-1]", None),
        ("[1, 2][0]", 1),
        ("[1, 2][-1]", 2),
        ("{'a': 1}['a']", 1),
        ("(1, 2)[:1]", (1, 2)),
    ],
)
def test_known_items(text, expected):
    assert evaluated(text) == expected


def test_out_of_range_is_unknown():
    assert isinstance(evaluated("(1, 2)[5]"), Unknown)
    assert isinstance(evaluated("[][0]"), Unknown)


def test_an_unknown_index_gives_one_that_stands_for_all():
    assert evaluated("[7, 8][i]") == 7
    assert evaluated("{'a': 7}[key]") == 7


def test_a_slice_is_no_longer_exact():
    assert not evaluated("[1, 2, 3][:2]").exact


def test_a_slice_of_models_is_exact_where_its_bounds_are_written():
    models = "nets = [model, torch.nn.ReLU(), torch.nn.Linear(2, 2)]\n"
    _, scope = executed(SETUP + models + "a = nets[1:]\nb = nets[:-1]\nc = nets[n:]\nd = [][1:]")
    every = scope.names["nets"].items
    assert (scope.names["a"].items, scope.names["a"].exact) == (every[1:], True)
    assert scope.names["b"].items == every[:-1]
    assert (scope.names["c"].items, scope.names["c"].exact) == (every, False)
    assert not scope.names["d"].exact  # it may have been filled where nobody looked


def test_items_of_unknowns_are_the_same_everywhere():
    _, scope = executed("a = batch['x']\nb = batch['x']\nc = batch['y']")
    assert scope.names["a"] is scope.names["b"]
    assert scope.names["a"] is not scope.names["c"]


def test_a_missing_key_is_the_same_unknown_from_then_on():
    _, scope = executed("d = {}\na = d['k']\nb = d['k']")
    assert scope.names["a"] is scope.names["b"]
    assert not scope.names["d"].exact


def test_a_layer_is_a_part_of_its_model():
    _, scope = executed(SETUP + "a = model[0]\nb = model[0]\nc = model[i]")
    a, c = scope.names["a"], scope.names["c"]
    assert isinstance(a, Net)
    assert a is scope.names["b"]
    assert a.part_of is scope.names["model"]
    assert c is not a


def test_an_item_of_an_output_comes_from_its_model():
    made = evaluated("model(x)['loss']", SETUP)
    assert isinstance(made, Tensor)
    assert made.known_as == "loss"
    assert {net.known_as for net in made.nets} == {"model"}


def test_the_parameters_of_a_group():
    source = """
for group in optimizer.param_groups:
    for p in group['params']:
        p.grad = None
"""
    assert once(SETUP + source) == [("zero", ("optimizer",), True)]
