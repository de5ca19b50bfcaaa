from instep.trace import Backward, Drawn, Opaque, Step, WindowRecord, Zero

O = ("o",)  # noqa: E741


def record(*events, pending=0, closed_by="step"):
    return WindowRecord("o", 0, events, closed_by, pending=pending)


def test_a_right_window():
    one, two = Backward(O, factor=0.5, items=8), Backward(O, factor=0.5, items=3)
    window = record(Zero(O), Drawn("l"), one, Drawn("l"), two, Step("o"), pending=4)
    assert window.backwards == window.kept == (one, two)
    assert window.steps == (Step("o"),)
    assert (window.items, window.micro_batches, window.factor_sum) == (11, 2, 1.0)
    assert (window.cleared, window.carried, window.lost, window.certain) == (True, 0, (), True)


def test_cleared_before_the_step():
    window = record(Backward(O), Zero(O), Step("o"))
    assert window.lost == (Backward(O),)
    assert window.kept == ()
    assert (window.items, window.micro_batches, window.factor_sum) == (0, 0, 0)


def test_never_cleared():
    window = record(Backward(O), Step("o"), pending=36)
    assert (window.cleared, window.carried, window.passed_on) == (False, 36, 37)


def test_filling_with_zeros_clears_too():
    assert record(Zero(O, set_to_none=False), Backward(O), pending=3).cleared


def test_what_may_have_cleared_leaves_it_unknown():
    for doubt in (Opaque(None, "helper(optimizer)"), Zero(None), Zero(O, complete=False)):
        window = record(doubt, Backward(O), Step("o"), pending=3)
        assert (window.cleared, window.carried, window.passed_on) == (None, None, None)
        assert not window.certain


def test_nothing_can_be_carried_where_nothing_was():
    assert record(Opaque(None, "helper(optimizer)"), Backward(O), Step("o")).carried == 0


def test_a_clear_after_doubt_is_certain_about_what_follows():
    window = record(Opaque(None, "helper(optimizer)"), Zero(O), Backward(O), pending=None)
    assert (window.cleared, window.carried, window.passed_on) == (True, 0, 1)
    assert not window.certain


def test_items_are_unknown_if_one_is():
    assert record(Backward(O, items=3), Backward(O)).items is None
    assert record(Backward(O, items=3), Backward(O), Step("o")).items is None


def test_a_step_may_say_what_its_backwards_did_not():
    assert record(Backward(O), Backward(O), Step("o", items=11)).items == 11


def test_terms_have_their_own_sums():
    window = record(Backward(O, factor=0.5, term="lm"), Backward(O, factor=2.0, term="box"))
    assert window.factor_sum == 2.5
    assert window.factor_sum_of("box") == 2.0
