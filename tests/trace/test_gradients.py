import pytest
from hypothesis import given

from instep.trace import Backward, Drawn, GradEdited, Opaque, Step, WindowDiscarded, Zero
from instep.trace.gradients import clears, count_micro_batches, is_known, sum_factors
from tests.trace.strategies import event_lists, events

O = ("o",)  # noqa: E741


@pytest.mark.parametrize(
    ("event", "cleared", "known"),
    [
        (Zero(O), True, True),
        (Zero(O, set_to_none=False), True, True),
        (Zero(O, complete=False), False, False),
        (Zero(None), False, False),
        (WindowDiscarded("o"), True, True),
        (Backward(O), False, True),
        (Backward(None), False, False),
        (Step(None), False, False),
        (Opaque(None, "train_step"), False, False),
    ],
)
def test_what_an_event_does(event, cleared, known):
    assert (clears(event), is_known(event)) == (cleared, known)


@given(events)
def test_what_clears_is_known(event):
    assert is_known(event) or not clears(event)


def test_pieces_that_nobody_draws_are_counted():
    assert count_micro_batches([Backward(O)] * 3) == 3


def test_terms_and_losses_of_one_batch_are_one_micro_batch():
    heads = [Drawn("loader"), Backward(O, term="lm"), Backward(O, term="box")]
    assert count_micro_batches(heads * 2) == 2


@given(event_lists)
def test_micro_batches_are_at_most_the_backwards(events):
    backwards = sum(isinstance(event, Backward) for event in events)
    assert (count_micro_batches(events) > 0) == (backwards > 0)
    assert count_micro_batches(events) <= backwards


def test_an_edit_reaches_only_what_was_added_before_it():
    events = [Backward(O, factor=1.0), GradEdited(O, 0.5), Backward(O, factor=1.0)]
    assert sum_factors(events, {None}) == 1.5
    assert sum_factors([GradEdited(O), Backward(O, factor=0.25)], {None}) == 0.25


@pytest.mark.parametrize(
    "edit", [GradEdited(O), GradEdited(O, 0.5, parameter="head.bias"), Backward(O)]
)
def test_what_is_not_known_makes_the_sum_unknown(edit):
    assert sum_factors([Backward(O, factor=1.0), edit], {None}) is None


def test_terms_are_summed_apart():
    events = [Backward(O, factor=0.5, term="lm"), Backward(O, term="box")]
    assert sum_factors(events, {"lm"}) == 0.5
    assert sum_factors(events, {"lm", "box"}) is None
