"""Promise 4: leaving a loop early, at every place, by every way."""

from __future__ import annotations

import copy
import gc
import itertools
import warnings
import weakref

import pytest
import torch

import instep
from instep.errors import InstepWarning, SetupError, WindowError
from tests.engine.kit import (
    EXACT,
    assert_bit_identical,
    batches,
    grouped,
    mean_loss,
    mlp,
    train_whole,
    update_error,
)

DATA = batches([3, 2, 4, 1, 5, 2, 3])


def fresh() -> tuple:
    model = mlp()
    return model, instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))


def epoch(stepper, model, data=DATA, size=3) -> None:
    for window in stepper.windows(data, size=size):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", range(1, 8))
@pytest.mark.parametrize("how", ["break", "exception"])
def test_an_abandoned_plain_loop_discards_the_open_window(after, how):
    """Whatever closed before stays, the open window vanishes, the next epoch starts clean."""
    model, stepper = fresh()
    start = copy.deepcopy(model)
    done = 0

    def body():
        nonlocal done
        for window in stepper.windows(DATA, size=3):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
                done += 1
                if done == after and how == "exception":
                    raise Stop
                if done == after:
                    return

    try:
        body()
    except Stop:
        # Even while the traceback is alive, nothing is left open.
        assert not stepper.is_in_window
    assert all(p.grad is None for p in model.parameters())
    # The body of the last micro-batch of a window ends before its update: that window is discarded.
    whole = grouped(DATA[: 3 * ((after - 1) // 3)], 3)
    if whole:
        assert update_error(start, model, train_whole(start, whole)) < EXACT
    else:
        assert_bit_identical(model, start)
    again = copy.deepcopy(model)
    epoch(stepper, model)
    assert update_error(again, model, train_whole(again, grouped(DATA, 3))) < EXACT


def test_break_of_the_inner_loop_discards_and_goes_on_with_the_next_batch():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    states = []
    with pytest.warns(instep.InstepWarning, match="left by break"):
        for window in stepper.windows(DATA, size=3):
            for index, (x, y) in enumerate(window):
                window.backward(mean_loss(model, x, y), items=len(y))
                if window.index == 0 and index == 1:
                    break
            if window.index == 0:
                with pytest.raises(WindowError, match="left early") as caught:
                    _ = window.loss
                assert "window.close()" in caught.value.fix
            states.append(window)
    with pytest.raises(WindowError, match="discarded"):
        _ = states[0].loss
    expected = train_whole(start, [DATA[2:5], DATA[5:7]])
    assert update_error(start, model, expected) < EXACT


@pytest.mark.parametrize("place", ["inner", "outer"])
def test_with_flush_updates_with_what_was_done(place):
    model, stepper = fresh()
    start = copy.deepcopy(model)
    with stepper.windows(DATA, size=3, on_exit="flush") as windows:
        for window in windows:
            for index, (x, y) in enumerate(window):
                window.backward(mean_loss(model, x, y), items=len(y))
                if index == 1:
                    break
            if place == "outer":
                break
    assert window.loss > 0
    if place == "outer":
        expected = train_whole(start, [DATA[:2]])
    else:
        expected = train_whole(start, grouped(DATA, 2))
    assert update_error(start, model, expected) < EXACT


def test_with_flush_still_discards_on_an_exception():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    with (
        pytest.raises(Stop),
        stepper.windows(DATA, size=3, on_exit="flush") as windows,
    ):
        for window in windows:
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
                raise Stop
    assert_bit_identical(model, start)
    assert all(p.grad is None for p in model.parameters())
    assert not stepper.is_in_window


def test_flush_without_with_is_refused():
    model, stepper = fresh()
    with pytest.raises(WindowError, match="needs `with`"):
        epoch_iterator = iter(stepper.windows(DATA, size=3, on_exit="flush"))
        next(epoch_iterator)
    with pytest.raises(SetupError, match="on_exit"):
        stepper.windows(DATA, size=3, on_exit="explode")


def test_close_and_discard_by_hand():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    for window in stepper.windows(DATA, size=3):
        for index, (x, y) in enumerate(window):
            window.backward(mean_loss(model, x, y), items=len(y))
            if window.index == 0 and index == 0:
                window.close()
            elif window.index == 1 and index == 1:
                window.discard()
    expected = train_whole(start, [DATA[:1], DATA[3:6], DATA[6:]])
    assert update_error(start, model, expected) < EXACT


def test_iterables_of_unknown_length_flush_at_their_end():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    windows = stepper.windows((batch for batch in DATA), size=3)
    with pytest.raises(TypeError, match="no length"):
        len(windows)
    for window in windows:
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
    assert update_error(start, model, train_whole(start, grouped(DATA, 3))) < EXACT
    assert len(stepper.windows(DATA, size=3)) == 3
    assert len(stepper.windows(DATA[:6], size=3)) == 2


def test_an_empty_loader_makes_no_window():
    _, stepper = fresh()
    with pytest.warns(InstepWarning, match="gave no batch"):
        assert list(stepper.windows([], size=3)) == []


@pytest.mark.parametrize("at", range(8))
def test_a_loader_that_raises_discards_the_open_window(at):
    model, stepper = fresh()

    def loader():
        for index, batch in enumerate(DATA):
            if index == at:
                raise Stop
            yield batch
        raise Stop

    start = copy.deepcopy(model)
    with pytest.raises(Stop):
        epoch(stepper, model, loader())
    assert not stepper.is_in_window
    assert all(p.grad is None for p in model.parameters())
    complete = grouped(DATA[: 3 * (at // 3)], 3)
    expected = train_whole(start, complete)
    assert all(map(torch.allclose, model.parameters(), expected.parameters()))


def test_a_window_inside_a_window_is_refused_and_harms_nothing():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    for window in stepper.windows(DATA, size=3):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
            with pytest.raises(WindowError, match="inside a window"):
                stepper.window()
            with pytest.raises(WindowError, match="inside a window"):
                next(iter(stepper.windows(DATA, size=3)))
            with pytest.raises(WindowError, match="inside a window"):
                stepper.step(x, lambda x: model(x).mean())
    assert update_error(start, model, train_whole(start, grouped(DATA, 3))) < EXACT


def test_a_window_that_is_never_iterated_is_an_error():
    _, stepper = fresh()
    with pytest.raises(WindowError, match="never iterated"):
        for _ in stepper.windows(DATA, size=3):
            pass
    assert not stepper.is_in_window


def test_a_window_is_iterated_once():
    model, stepper = fresh()
    for window in stepper.windows(DATA[:2], size=3):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
            with pytest.raises(WindowError, match="handed out already"):
                iter(window)
    with pytest.raises(WindowError, match="iterate does not fit"):
        iter(window)


def test_a_loop_that_is_garbage_collected_leaves_no_gradients():
    model, stepper = fresh()
    loop = iter(stepper.windows(DATA, size=3))
    window = next(loop)
    for x, y in window:
        window.backward(mean_loss(model, x, y), items=len(y))
        break
    del loop
    gc.collect()
    assert not stepper.is_in_window
    assert all(p.grad is None for p in model.parameters())


def test_counts_ahead_with_a_skipped_micro_batch_are_corrected():
    """One term: the told total was too large, and the close can still make it right."""
    model, stepper = fresh()
    start = copy.deepcopy(model)
    for window in stepper.windows(DATA, size=3, count=lambda batch: len(batch[1])):
        for index, (x, y) in enumerate(window):
            if index == 1:
                continue
            window.backward(mean_loss(model, x, y))
    kept = [batch for index, batch in enumerate(DATA) if index % 3 != 1]
    assert update_error(start, model, train_whole(start, [kept[:2], kept[2:4], kept[4:]])) < EXACT


def test_counts_ahead_that_disagree_between_terms_are_refused():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    count = lambda batch: {"a": len(batch[1]), "b": 2 * len(batch[1])}
    with pytest.raises(WindowError, match="differ between the terms"):
        for window in stepper.windows(DATA, size=3, count=count):
            for x, y in window:
                loss = mean_loss(model, x, y)
                window.backward({"a": loss, "b": 2 * loss}, items={"a": len(y), "b": len(y)})
    assert_bit_identical(model, start)
    assert not stepper.is_in_window


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "8", None])
def test_a_size_that_is_none_is_refused(size):
    _, stepper = fresh()
    with pytest.raises(SetupError, match="size is"):
        stepper.windows(DATA, size=size)


def test_a_stale_loop_leaves_the_next_window_alone():
    model, stepper = fresh()
    stale = iter(stepper.windows(DATA, size=3))
    next(stale).discard()
    with stepper.window() as window:
        window.backward(mean_loss(model, *DATA[0]), items=3)
        stale.close()
        window.backward(mean_loss(model, *DATA[1]), items=2)
    assert window.items == 5


def test_a_window_that_is_held_does_not_hold_the_loader():
    class Batches:
        """Iterates like a loader with workers: alive as long as somebody holds it."""

        def __iter__(self):
            self.iterator = iter(DATA)
            return self

        def __next__(self):
            return next(self.iterator)

    model, stepper = fresh()
    loader = Batches()
    alive = weakref.ref(loader)
    for window in stepper.windows(loader, size=3, count=lambda batch: len(batch[1])):
        for x, y in window:
            window.backward(mean_loss(model, x, y))
            break
        break
    del loader
    gc.collect()
    assert alive() is None
    assert not window.is_open


def test_updates_that_happened_are_told_even_if_a_scheduler_raises():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=2)
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler)
    windows = []
    with pytest.raises(ValueError, match="Tried to step"):
        for window in stepper.windows(DATA, size=1):
            windows.append(window)
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))
    assert [len(window.updates) for window in windows] == [1, 1, 1]
    assert windows[-1].updates[0].skipped is None
    assert not stepper.is_in_window


def islice_loop(window):
    return itertools.islice(window, 3)


def zip_loop(window):
    return (batch for _, batch in zip(range(3), window, strict=False))


def break_loop(window):
    for index, batch in enumerate(window):
        yield batch
        if index == 2:
            break


@pytest.mark.parametrize("inner", [islice_loop, zip_loop, break_loop])
def test_leaving_after_the_last_micro_batch_is_no_leaving(inner):
    """All work of the window was done, so its update happens, whoever counted to its size."""
    model, stepper = fresh()
    start = copy.deepcopy(model)
    for window in stepper.windows(DATA, size=3):
        for x, y in inner(window):
            window.backward(mean_loss(model, x, y), items=len(y))
    assert update_error(start, model, train_whole(start, grouped(DATA, 3))) < EXACT


def test_breaking_before_the_last_backward_is_leaving():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    with pytest.warns(instep.InstepWarning, match="left by break"):
        for window in stepper.windows(DATA[:3], size=3):
            for index, (x, y) in enumerate(window):
                if index == 2:
                    break
                window.backward(mean_loss(model, x, y), items=len(y))
    assert_bit_identical(model, start)


def test_a_window_can_be_closed_after_its_loop_was_left():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    for window in stepper.windows(DATA[:3], size=3):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
            break
        window.close()
        assert window.items == len(y)
    expected = train_whole(start, [DATA[:1], DATA[1:2], DATA[2:3]])
    assert update_error(start, model, expected) < EXACT


def test_windows_without_any_backward_are_said_once():
    model, stepper = fresh()
    start = copy.deepcopy(model)
    with pytest.warns(instep.InstepWarning, match="without any backward") as caught:
        for window in stepper.windows(DATA, size=2):
            for _ in window:
                pass
            assert window.skipped == "empty"
    assert len(caught) == 1
    assert_bit_identical(model, start)


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_scheduler_that_is_stepped_by_hand_as_well_is_noticed(by_hand):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    stepper = instep.Stepper(model, optimizer, scheduler=scheduler)

    def train():
        for _ in range(2):
            scheduler.load_state_dict(scheduler.state_dict() | {"last_epoch": 7})  # a resume
            for window in stepper.windows(DATA, size=2):
                for x, y in window:
                    window.backward(mean_loss(model, x, y), items=len(y))
                if by_hand:
                    scheduler.step()

    if by_hand:
        with pytest.warns(instep.InstepWarning, match="moves faster") as caught:
            train()
        assert len(caught) == 1
    else:
        train()


def told_of_nothing(loop) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("by_batch", [False, True])
def test_a_loader_that_gives_nothing_is_said_once(by_batch):
    model, stepper = fresh()

    def loop(loader):
        if by_batch:
            for x, y in stepper.batches(loader):
                stepper.step((x, y), lambda piece: mean_loss(model, *piece))
            return
        for window in stepper.windows(loader, size=2):
            for x, y in window:
                window.backward(mean_loss(model, x, y), items=len(y))

    generator = (batch for batch in batches([3, 3]))
    assert told_of_nothing(lambda: loop(generator)) == []
    (text,) = told_of_nothing(lambda: [loop(generator) for _ in range(3)])
    assert "gave no batch" in text
    assert "an iterator" in text
    _, stepper = fresh()
    (text,) = told_of_nothing(lambda: loop([]))
    assert "length is 0" in text

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(())

    # A stream may have nothing today.
    _, stepper = fresh()
    assert told_of_nothing(lambda: loop(torch.utils.data.DataLoader(Stream()))) == []


@pytest.mark.parametrize("error", [TypeError, NotImplementedError, RuntimeError, KeyError])
def test_a_loader_whose_length_fails_ends_no_loop(error):
    class Later:
        def __iter__(self):
            return iter(())

        def __len__(self):
            raise error("known after setup()")

    _, stepper = fresh()
    # Not list(), which asks for the length itself.
    assert told_of_nothing(lambda: [w for w in stepper.windows(Later(), size=2)]) == []  # noqa: C416


def test_a_loop_that_is_continued_at_its_end_has_given_all():
    data = batches([3, 3])
    model, stepper = fresh()
    for window in stepper.windows(data, size=1):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))
        if window.index == 1:
            state = stepper.state_dict()
    model, stepper = fresh()
    stepper.load_state_dict(state)
    assert told_of_nothing(lambda: [*stepper.windows(data, size=1)]) == []
