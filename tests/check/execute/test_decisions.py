from instep.check.execute.decisions import Decisions, Undecided


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
    assert not Decisions({"flag": False}).decide(Undecided("flag"), prefer=True, worth=True)


def test_only_what_is_worth_it_makes_another_path():
    decisions = Decisions()
    decisions.decide(Undecided("a"), prefer=True, worth=True)
    decisions.decide(Undecided("b"), prefer=True, worth=False)
    assert decisions.flips() == [{"a": False}]
