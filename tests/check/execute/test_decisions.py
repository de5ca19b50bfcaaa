from instep.check.execute.decisions import Choice, Decisions, Undecided


def test_a_condition_is_decided_once():
    decisions = Decisions()
    condition = Undecided("flag")
    assert decisions.known(condition) is None
    assert decisions.decide(condition, prefer=True, worth=False)
    assert decisions.decide(condition, prefer=False, worth=False)
    assert decisions.known(~condition) is False


def test_a_negated_condition_is_the_same_decision():
    decisions = Decisions()
    assert not decisions.decide(~Undecided("flag"), prefer=False, worth=False)
    assert decisions.known(Undecided("flag")) is True


def test_what_is_forced_goes_before_what_is_preferred():
    decisions = Decisions(~Undecided("flag"))
    assert not decisions.decide(Undecided("flag"), prefer=True, worth=True)


def test_only_what_is_worth_it_makes_another_path():
    decisions = Decisions()
    decisions.decide(Undecided("a"), prefer=True, worth=True)
    decisions.decide(Undecided("b"), prefer=True, worth=False)
    assert [(flip.key, flip.positive) for flip in decisions.flips()] == [("a", False)]


def one_of(*values: str | int) -> Undecided:
    return Undecided(f"kind in {values}", choice=Choice("kind", frozenset(values)))


def test_what_is_one_thing_is_not_another():
    decisions = Decisions()
    assert decisions.decide(one_of("adam"), prefer=True, worth=True)
    assert not decisions.decide(one_of("sgd"), prefer=True, worth=True)
    assert decisions.known(one_of("sgd", "adam")) is True
    assert decisions.known(one_of("sgd", "lion")) is False
    assert decisions.known(Undecided("kind")) is True
    assert [(flip.key, flip.positive) for flip in decisions.flips()] == [
        ("kind in ('adam',)", False),
        ("kind in ('sgd',)", True),
    ]


def test_what_is_forced_rules_out_what_comes_before_it():
    decisions = Decisions(one_of("sgd"))
    assert not decisions.decide(one_of("adam"), prefer=True, worth=True)
    assert decisions.decide(one_of("sgd"), prefer=False, worth=True)


def test_one_is_left_of_two():
    decisions = Decisions()
    assert decisions.decide(one_of(0, -1), prefer=True, worth=False)
    assert not decisions.decide(one_of(0), prefer=False, worth=False)
    assert decisions.known(one_of(-1)) is True


def test_none_of_two_is_neither():
    decisions = Decisions()
    assert not decisions.decide(one_of("a", "b"), prefer=False, worth=False)
    assert decisions.known(one_of("a")) is False
    assert decisions.known(one_of("a", "c")) is None


def test_what_is_absent_is_nothing_but_zero():
    decisions = Decisions()
    assert not decisions.decide(Undecided("kind"), prefer=False, worth=False)
    assert decisions.known(one_of("a")) is False
    assert decisions.known(one_of(0)) is None
