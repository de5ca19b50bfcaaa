import math
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from instep.trace import (
    Backward,
    Created,
    Drawn,
    EpochEnd,
    Opaque,
    Schedule,
    Step,
    WindowDiscarded,
    WindowOpened,
    Zero,
    optimizers,
    windows,
    windows_of,
)
from tests.trace.strategies import event_lists

O = ("o",)  # noqa: E741


def loop(length, every, *, epochs=1, clear=True):
    """The events of a plain accumulating loop."""
    for epoch in range(epochs):
        for i in range(length):
            yield Drawn("loader", i, items=4)
            yield Backward(O, factor=1 / every, items=4)
            if (i + 1) % every == 0:
                yield Step("o")
                yield Schedule("o", "scheduler")
                if clear:
                    yield Zero(O)
        yield EpochEnd("loader", epoch)


def belongs(event, name):
    touched = event.touches()
    return touched is None or name in touched


@given(event_lists)
def test_concatenated_windows_are_the_events(events):
    for name, records in windows(events).items():
        joined = [event for record in records for event in record.events]
        mine = [event for event in events if belongs(event, name)]
        assert len(joined) == len(mine)
        assert all(a is b for a, b in zip(joined, mine, strict=True))


@given(event_lists)
def test_what_a_walk_tells_is_what_the_events_say(events):
    for records in windows(events).values():
        for record, after in pairwise([*records, None]):
            alone = replace(record)  # it has been told nothing
            assert record.certain == alone.certain
            assert record.since_clear == alone.since_clear
            if after is not None and record.closed_by != "recreated":
                assert after.pending == alone.passed_on


@given(event_lists)
def test_an_update_closes_exactly_one_window(events):
    for records in windows(events).values():
        for record in records[:-1]:
            assert record.closed_by is not None
        for record in records:
            assert record.events
            assert len(record.steps) == (record.closed_by == "step")
            assert not record.steps or record.events[-1] is record.steps[0]
            assert len(record.of(WindowDiscarded)) == (record.closed_by == "discarded")
            assert record.lost + record.kept == record.backwards
            assert record.micro_batches <= len(record.kept)
            assert record.leftover <= len(record.backwards)


@given(event_lists)
def test_every_named_optimizer_has_windows(events):
    named = {name for event in events for name in event.touches() or ()}
    assert set(windows(events)) == set(optimizers(events)) == named


@given(st.data(), st.integers(1, 5), st.integers(1, 3))
def test_a_plain_loop(data, every, epochs):
    length = data.draw(st.integers(every, 4 * every))
    records = windows_of(loop(length, every, epochs=epochs), "o")
    full = [record for record in records if record.closed_by]
    assert len(full) == epochs * (length // every)
    assert [record.index for record in records] == list(range(len(records)))
    # What one epoch leaves is waiting when it ends, and comes on top of the next one's window.
    left = length % every
    assert sum(record.leftover for record in records) == left * epochs
    for record in full:
        size = every + record.leftover
        assert (record.micro_batches, record.items) == (size, 4 * size)
        assert math.isclose(record.factor_sum, size / every)
        assert (record.cleared, record.carried, record.certain) == (True, 0, True)


@given(st.integers(1, 12), st.integers(1, 5))
def test_what_is_never_cleared_is_carried(length, every):
    records = windows_of(loop(length, every, clear=False), "o")
    for record in records:
        assert record.carried == record.index * every
        assert record.cleared is (record.index == 0)


def test_the_last_window_of_an_epoch_is_left_over():
    *_, last = windows_of(loop(14, 4), "o")
    assert (last.closed_by, last.leftover, last.micro_batches) == (None, 2, 2)


def test_a_leftover_that_is_cleared_is_lost():
    backward = Backward(O)
    events = [Drawn("l"), backward, EpochEnd("l"), Zero(O), Drawn("l"), backward, Step("o")]
    (window,) = windows_of(events, "o")
    assert (window.leftover, len(window.lost), len(window.kept)) == (1, 1, 1)


def test_the_end_of_validation_is_not_the_end_of_the_epoch():
    validation = [Drawn("val"), Drawn("val"), EpochEnd("val")]
    events = [Drawn("l"), Backward(O), *validation, Drawn("l"), Backward(O), *validation, Step("o")]
    (window,) = windows_of(events, "o")
    assert (window.leftover, window.micro_batches) == (0, 2)


def test_loaders_drawn_together_both_end_the_epoch():
    events = [Drawn("a"), Drawn("b"), Backward(O), EpochEnd("a")]
    assert windows_of(events, "o")[0].leftover == 1


def test_the_end_of_the_pieces_is_not_the_end_of_the_epoch():
    piece = [Drawn("patches", of="l"), Backward(O)]
    events = [Drawn("l"), *piece, *piece, EpochEnd("patches", of="l"), Step("o"), EpochEnd("l")]
    first, _ = windows_of(events, "o")
    assert (first.leftover, first.micro_batches) == (0, 2)


def test_pieces_wait_for_an_update_at_the_end_of_the_whole_loader():
    piece = [Drawn("patches", of="l"), Backward(O)]
    (window,) = windows_of([Drawn("l"), *piece, *piece, EpochEnd("l")], "o")
    assert window.leftover == 2


def test_pieces_of_a_batch_that_nobody_drew_end_no_epoch():
    events = [Drawn("patches", of="l"), Backward(O), EpochEnd("patches", of="l")]
    assert windows_of(events, "o")[0].leftover == 0


def test_a_second_loss_is_fed_by_the_same_loader():
    events = [Drawn("l"), Backward(O, "box"), Backward(O, "class"), Drawn("val"), EpochEnd("val")]
    assert windows_of(events, "o")[0].leftover == 0


def test_what_was_cleared_or_used_is_not_left_over():
    for end in (Zero(O), Step("o"), WindowDiscarded("o")):
        for window in windows_of([Drawn("l"), Backward(O), end, EpochEnd("l")], "o"):
            assert window.leftover == 0


def test_a_window_longer_than_the_epoch_counts_what_the_first_one_left():
    (window,) = windows_of(loop(2, 5, epochs=2), "o")
    assert (window.leftover, window.micro_batches) == (2, 4)


def test_two_losses_of_one_batch_leave_one_micro_batch():
    events = [Drawn("l"), Backward(O, "box"), Backward(O, "class"), EpochEnd("l")]
    assert windows_of(events, "o")[0].leftover == 1


def test_optimizers_have_their_own_windows():
    both = Backward(("g", "d"), "g_loss")
    events = [Drawn("l"), Backward(("d",), "d_loss"), Step("d"), both, Step("g")]
    found = windows(events)
    assert list(found) == ["d", "g"]
    assert [record.closed_by for record in found["d"]] == ["step", None]
    assert found["d"][1].backwards == (both,)
    assert [record.closed_by for record in found["g"]] == ["step"]


def test_a_discarded_window_leaves_nothing_behind():
    opened = WindowOpened("o", size=4)
    discarded = WindowDiscarded("o", "abandoned")
    first, second = windows_of([opened, Backward(O), discarded, opened, Backward(O)], "o")
    assert (first.closed_by, len(first.lost), first.kept) == ("discarded", 1, ())
    assert (second.pending, second.cleared) == (0, True)


def test_a_skipped_step_closes_its_window():
    first, second = windows_of([Backward(O), Step("o", "nonfinite"), Zero(O), Backward(O)], "o")
    assert first.steps[0].skipped == "nonfinite"
    assert second.cleared


def test_creating_the_optimizer_again_starts_anew():
    made = Created("o", "optimizer")
    first, second = windows_of([Drawn("l"), made, Backward(O), made, Backward(O)], "o")
    assert first.closed_by == "recreated"
    assert first.events[:2] == (Drawn("l"), made)
    assert second.cleared is None  # the gradients may be those of the same parameters
    first, second = windows_of([made, Backward(O), Zero(O), made, Backward(O)], "o")
    assert second.cleared is True


def test_what_follows_an_opaque_window_is_unknown_until_cleared():
    opaque = Opaque(O, "engine.train_step")
    events = [opaque, Backward(O), Step("o"), Backward(O), Step("o"), Zero(O), Backward(O)]
    first, second, third = windows_of(events, "o")
    assert not first.certain
    assert (second.pending, second.cleared) == (None, None)
    assert (third.pending, third.cleared, third.certain) == (None, True, True)


def test_no_events_no_windows():
    assert windows([]) == {}
    assert windows_of([], "o") == ()
