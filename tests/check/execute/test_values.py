import ast

from instep.check.execute.ticks import Mod, Tick
from instep.check.execute.values import COUNT, Gate, Ref, Thing, Unknown, unify, written


def test_a_thing_is_shown_by_its_name():
    assert repr(Thing("optimizer")) == "<Thing optimizer>"


def test_an_unknown_is_named_by_its_key_unless_it_has_a_name():
    assert Unknown("3:1:2").known_as == "3:1:2"
    assert Unknown("3:1:2", "").known_as == ""
    assert Unknown("3:1:2", "steps").known_as == "steps"


def test_an_unknown_number_stays_the_one_it_was_taken_for():
    steps = Unknown("steps")
    assert steps.number() == COUNT
    steps.count = 7
    assert steps.number() == 7


def test_attributes_are_its_own():
    one, other = Unknown("a"), Unknown("b")
    one.attrs["x"] = 1
    assert other.attrs == {}
    assert other.made is None


def test_unify_gives_what_a_value_turned_out_to_be():
    value = Unknown("x")
    assert unify(value) is value
    value.made = Thing("model")
    assert unify(value) is value.made
    assert unify(3) == 3
    assert unify(None) is None


def test_a_gate_that_is_turned_hangs_on_the_same_count():
    gate = Gate(4, written="literal", holds=False).turned(holds=True)
    assert (gate.every, gate.written, gate.holds) == (4, "literal", True)
    assert repr(gate) == "<Gate True every 4>"


def test_counters_are_numbers():
    assert Mod(3) + Tick(1) == 4
    assert ast.literal_eval(repr(Tick(2))) == 2


def test_what_a_reference_has_under_a_name_is_always_the_same():
    torch = Ref("torch")
    assert torch.member("optim").member("Adam").path == "torch.optim.Adam"
    assert torch.member("optim") is torch.member("optim")
    assert torch.member("optim") is not torch.member("nn")


def test_a_number_that_stood_for_a_default_is_not_the_default():
    taken, default = Unknown("a"), Unknown("b")
    assert taken.number() == COUNT
    taken.usual = default.usual = COUNT + 1
    assert default.number() == COUNT + 1
    assert [written(taken), written(default)] == ["nowhere", "default"]
