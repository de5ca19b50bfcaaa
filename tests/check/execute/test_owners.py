import ast

from instep.check.execute.journal import Note
from instep.check.execute.owners import Owners
from instep.check.execute.things import Net, Optimizer
from tests.check.execute.run import module_of


def notes(*data):
    module = module_of("")
    return [Note(kind, ast.Pass(), module, values) for kind, values in data]


def owners(*optimizers):
    return Owners(notes(*(("step", {"optimizer": optimizer}) for optimizer in optimizers)))


def test_who_holds_the_models():
    one, two = Net("one"), Net("two")
    a, b = Optimizer("a", frozenset({one})), Optimizer("b", frozenset({two}))
    found = owners(a, b)
    assert found.of(frozenset({one})) == [a]
    assert found.of(frozenset({one, two})) == [a, b]
    assert found.of(frozenset({Net("three")})) == []


def test_a_part_belongs_to_who_holds_the_whole():
    whole = Net("model")
    a = Optimizer("a", frozenset({whole}))
    assert owners(a).of(frozenset({Net("part", part_of=whole)})) == [a]


def test_what_is_not_known_belongs_to_the_only_one_or_to_nobody_knows_whom():
    a, b = Optimizer("a"), Optimizer("b")
    assert owners(a).of(None) == [a]
    assert owners(a, b).of(None) is None
    assert owners(a).of(frozenset({Net("x")})) == [a]
    assert owners(a, b).of(frozenset({Net("x")})) is None
    assert owners().of(None) == []


def test_one_that_surely_holds_it_is_enough():
    net = Net("x")
    a, b = Optimizer("a", frozenset({net})), Optimizer("b")
    assert owners(a, b).of(frozenset({net})) == [a]
    assert owners(a, b).of(frozenset({net, Net("y")})) is None


def test_one_that_was_replaced_is_gone():
    a, b = Optimizer("a"), Optimizer("b")
    found = Owners(
        notes(
            ("made", {"thing": a}),
            ("step", {"optimizer": a}),
            ("made", {"thing": b}),
            ("step", {"optimizer": b}),
        )
    )
    for now, there in [(0, [a]), (1, [a]), (2, [b]), (3, [b]), (1, [a])]:
        found.now = now
        assert found.present() == there


def test_one_that_is_still_used_is_there():
    a, b = Optimizer("a"), Optimizer("b")
    found = Owners(
        notes(
            ("made", {"thing": a}),
            ("made", {"thing": b}),
            ("step", {"optimizer": a}),
            ("step", {"optimizer": b}),
        )
    )
    found.now = 3
    assert found.present() == [a, b]


def test_what_clearing_some_models_covers():
    one, two = Net("one"), Net("two")
    both = Optimizer("o", frozenset({one, two}))
    assert owners(both).covers([both], frozenset({one, two}))
    assert not owners(both).covers([both], frozenset({one}))
    assert owners(both).covers(None, frozenset({one}))


def test_whether_anybody_holds_a_model():
    net = Net("x")
    made = Owners(notes(("made", {"thing": Optimizer("o", frozenset({net}))})))
    assert made.holds(net)
    assert not made.holds(Net("y"))
