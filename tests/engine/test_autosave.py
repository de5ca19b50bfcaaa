"""A run that saves itself, is stopped, and goes on as if nothing had been."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader

import instep
from instep.checkpoint import disk, files
from instep.errors import CheckpointError, InstepWarning, SetupError, StateError
from tests.engine.kit import assert_bit_identical, batches, mean_loss, mlp
from tests.engine.test_state import Augmented, Job


class Stop(Exception):
    """Stands for a kill: nothing of ours catches it."""


class Run(Job):
    """Three epochs, saved by themselves, that may be stopped after so many micro-batches."""

    def train(self, path, *, stop: int | None = None, epochs: int = 3, **options) -> list[int]:
        seen, self.epochs_seen = 0, []
        with self.stepper.autosave(path, **{"every": 2, **options}) as run:
            self.run = run
            for epoch in self.stepper.epochs(epochs):
                self.epochs_seen.append(epoch)
                for window in self.stepper.windows(self.loader, size=3):
                    for x, y in window:
                        if seen == stop:
                            raise Stop
                        window.backward(self.loss(x, y), items=len(y))
                        seen += 1
        return seen


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ckpt"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    job = Run()
    assert job.train(tmp_path_factory.mktemp("whole") / "run.ckpt") == 24
    return job


@pytest.mark.parametrize("stop", [0, 1, 5, 7, 8, 13, 23])
def test_a_stopped_run_ends_like_one_that_was_not(path, whole, stop):
    first = Run()
    with pytest.raises(Stop):
        first.train(path, stop=stop)
    torch.manual_seed(99)
    second = Run()
    second.train(path)
    assert second.run.resumed is not None
    # Windows end at 3, 6 and 8 of each epoch; every second one is saved, and the very beginning.
    ends = [epoch * 8 + end for epoch in range(3) for end in (3, 6, 8)]
    updates = sum(end < stop or end == stop for end in ends)
    assert second.run.resumed.updates in (updates // 2 * 2, (updates - 1) // 2 * 2)
    assert_bit_identical(second.model, whole.model)
    assert second.scheduler.state_dict() == whole.scheduler.state_dict()


def test_many_stops_in_one_run(path, whole):
    for stop in (4, 3, 5, 4, 1, 7):
        job = Run()
        with pytest.raises(Stop):
            job.train(path, stop=stop, every=1)
    job = Run()
    job.train(path, every=1)
    assert_bit_identical(job.model, whole.model)


class Summing(Job):
    """The loop of `instep explain autosave` that says the mean loss of each epoch."""

    def train(self, path, *, stop: int | None = None) -> dict[int, float]:
        seen, said = 0, {}
        sums = {"loss": 0.0, "items": 0.0}
        with self.stepper.autosave(path, every=1, extra=sums) as run:
            for epoch in self.stepper.epochs(3):
                for window in self.stepper.windows(self.loader, size=3):
                    for x, y in window:
                        if seen == stop:
                            raise Stop
                        window.backward(self.loss(x, y), items=len(y))
                        seen += 1
                    run.extra["loss"] += window.loss * window.items
                    run.extra["items"] += window.items
                said[epoch] = run.extra["loss"] / run.extra["items"]
                run.extra.update(loss=0.0, items=0.0)
        return said


@pytest.mark.parametrize("stop", [2, 3, 7, 8, 9, 16, 20])
def test_the_sums_of_an_epoch_in_extra_go_on_bit_for_bit(path, tmp_path, stop):
    whole = Summing().train(tmp_path / "whole.ckpt")
    with pytest.raises(Stop):
        Summing().train(path, stop=stop)
    said = Summing().train(path)
    assert said == {epoch: whole[epoch] for epoch in said}
    # Where the last update was that of an epoch's end, its body runs again, without a window.
    last = max((end for end in (3, 6, 8, 11, 14, 16, 19) if end <= stop), default=1)
    assert min(said) == (last - 1) // 8


def test_a_run_that_is_done_has_nothing_to_do(path, whole):
    Run().train(path)
    again = Run()
    assert again.train(path) == 0
    assert again.epochs_seen == []
    assert_bit_identical(again.model, whole.model)
    more = Run()
    assert more.train(path, epochs=4) == 8
    assert more.epochs_seen == [3]


def test_a_run_that_is_done_keeps_the_checkpoint_before_the_last(path):
    Run().train(path, every=1)
    before = disk.previous_of(path)
    both = path.read_bytes(), before.read_bytes()
    for _ in range(2):
        assert Run().train(path, every=1) == 0
        assert (path.read_bytes(), before.read_bytes()) == both
    again = Run()
    with again.stepper.autosave(path, every=1) as run:
        run.save()
    assert before.read_bytes() == both[0]
    with Run().stepper.autosave(path, every=1) as run:
        run.extra["best"] = torch.ones(2)
    assert torch.equal(files.read(path).parts["extra"]["best"], torch.ones(2))
    with Run().stepper.autosave(path, every=1) as run:
        # In place, where a dict compared with what was loaded would be compared with itself.
        run.extra["best"].zero_()
    assert torch.equal(files.read(path).parts["extra"]["best"], torch.zeros(2))
    more = Run()
    assert more.train(path, epochs=4, every=100) == 8
    assert files.read(path).updates == 12


def test_extra_comes_back(path):
    model = mlp()
    for expected in (0, 1, 2):
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with stepper.autosave(path, every=1, extra={"starts": 0}) as run:
            assert run.extra["starts"] == expected
            assert (run.resumed is None) == (expected == 0)
            run.extra["starts"] += 1


def test_a_checkpoint_is_made_at_once_so_that_what_cannot_be_saved_is_known(path):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(CheckpointError, match=r"extra\['f'\]"):
        stepper.autosave(path, every=1, extra={"f": print})
    stepper.autosave(path, every=1).stop()
    assert files.read(path).updates == 0


def test_a_damaged_checkpoint_is_replaced_by_the_one_before_and_said(path, whole):
    with pytest.raises(Stop):
        Run().train(path, stop=14, every=1)
    path.write_bytes(path.read_bytes()[:-1])
    job = Run()
    with pytest.warns(InstepWarning, match="is cut off: this run goes on from .* after 4 updates"):
        job.train(path, every=1)
    assert job.run.resumed.is_previous
    assert_bit_identical(job.model, whole.model)


def test_a_missing_checkpoint_with_one_before_is_said(path, whole):
    with pytest.raises(Stop):
        Run().train(path, stop=14, every=1)
    path.unlink()
    job = Run()
    with pytest.warns(InstepWarning, match="there is no checkpoint .* goes on from") as said:
        job.train(path, every=1)
    assert f"To begin anew, remove {disk.previous_of(path)} as well." in str(said[0].message)
    assert_bit_identical(job.model, whole.model)


@pytest.mark.parametrize("content", [b"PK\x03\x04 somebody's weights" * 10, b"\0" * 999])
def test_what_cannot_be_gone_on_from_is_never_overwritten(path, content):
    path.write_bytes(content)
    with pytest.raises(CheckpointError):
        Run().train(path)
    assert path.read_bytes() == content


def test_a_foreign_file_beside_a_checkpoint_is_not_to_be_gone_around(path):
    with pytest.raises(Stop):
        Run().train(path, stop=14, every=1)
    path.write_bytes(b"somebody's notes")
    with pytest.raises(CheckpointError, match="is no checkpoint of instep") as caught:
        Run().train(path)
    assert caught.value.fix == "give autosave another path, or move it away."
    assert path.read_bytes() == b"somebody's notes"


def test_somebody_elses_checkpoint_is_never_overwritten(path):
    other = mlp(inputs=2)
    instep.Stepper(other, torch.optim.SGD(other.parameters(), lr=0.1)).save(path)
    before = path.read_bytes()
    with pytest.raises(instep.errors.StateError, match="does not fit"):
        Run().train(path)
    assert path.read_bytes() == before


def test_a_full_disk_is_said_and_training_goes_on(path, whole, monkeypatch):
    job = Run()
    real = files.write
    calls = []

    def write(place, parts, *, updates):
        calls.append(updates)
        if len(calls) == 3:
            with disk.explained(place):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(place, parts, updates=updates)

    monkeypatch.setattr(files, "write", write)
    with pytest.warns(InstepWarning, match="no checkpoint after 4 updates.*the disk is full"):
        job.train(path)
    assert calls == [0, 2, 4, 6, 8, 9]
    assert_bit_identical(job.model, whole.model)


def test_by_time(path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    saved = []
    stepper.autosave(path, seconds=10, signals=())
    for window in stepper.windows(batches([2] * 9), size=1):
        saved.append(files.read(path).updates)
        now[0] += 4.0
        for batch in window:
            window.backward(mean_loss(model, *batch), items=2)
    assert saved == [0, 0, 0, 3, 3, 3, 6, 6, 6]


def test_in_the_background(path, whole):
    job = Run()
    with pytest.raises(Stop):
        job.train(path, stop=13, wait=False)
    second = Run()
    job.stepper._desk.clear()
    second.train(path, wait=False)
    assert second.run.resumed.updates == 4
    assert_bit_identical(second.model, whole.model)


@pytest.mark.parametrize("workers", [0, 2])
def test_function_style_knows_its_place(path, workers):
    def train(stop=None):
        job = Job(workers=workers)
        losses = []
        with job.stepper.autosave(path, every=1):
            for _ in job.stepper.epochs(2):
                for batch in job.stepper.batches(job.loader):
                    if len(losses) == stop:
                        raise Stop
                    update = job.stepper.step(batch, lambda b: job.loss(*b), split=2)
                    losses.append(update.loss)
        return job, losses

    whole, losses = train()
    path.unlink()
    disk.previous_of(path).unlink()
    for stop in (3, 2, 6):
        with pytest.raises(Stop):
            train(stop)
    resumed, tail = train()
    assert tail == losses[-len(tail) :]
    assert len(tail) == 16 - 3 - 2 - 6 + 0
    assert_bit_identical(resumed.model, whole.model)


def test_saving_by_hand_after_a_step_does_not_repeat_its_batch(path):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = list(enumerate(batches([2] * 4)))
    for index, batch in stepper.batches(data):
        if index == 1:
            stepper.save(path)
        stepper.step(batch, lambda b: mean_loss(model, *b))
        if index == 2:
            stepper.save(path)
            break
    stepper.load(path, previous=True)
    assert [index for index, _ in stepper.batches(data)] == [1, 2, 3]
    stepper.load(path)
    assert [index for index, _ in stepper.batches(data)] == [3]
    stepper.load(path)
    with pytest.raises(instep.errors.StateError, match=r"in a loop over stepper.batches\(\)"):
        next(iter(stepper.windows(data, size=1)))


def test_without_a_loader_it_saves_after_the_update(path):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    stepper.autosave(path, every=2, signals=())
    found = []
    for batch in batches([2] * 4):
        stepper.step(batch, lambda b: mean_loss(model, *b))
        found.append(files.read(path).updates)
    with stepper.window() as window:
        window.backward(mean_loss(model, *batches([2])[0]), items=2)
    with stepper.window() as window:
        window.backward(mean_loss(model, *batches([2])[0]), items=2)
    # A window by hand is saved before the next one.
    assert [*found, files.read(path).updates] == [0, 2, 2, 4, 4]
    with stepper.window():
        assert files.read(path).updates == 6


def test_a_loop_inside_a_loop_is_no_safe_point(path):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    stepper.autosave(path, every=1, signals=())
    data, found = batches([2, 2]), []
    for window in stepper.windows(data, size=1):
        for batch in window:
            window.backward(mean_loss(model, *batch), items=2)
        for inner in stepper.windows(data, size=1):
            for batch in inner:
                inner.backward(mean_loss(model, *batch), items=2)
            found.append(files.read(path).updates)
    assert found == [0, 0, 3, 3]
    assert files.read(path).updates == 6


class Broken(Augmented):
    broken = True

    def __getitem__(self, index):
        if index == 9 and self.broken:
            raise ConnectionError("the storage does not answer")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_raises_loses_nothing(path, whole, workers):
    plain = Run(workers=workers)
    plain.train(path.with_name("plain"), epochs=1)

    def build():
        job = Run(workers=workers)
        job.loader = DataLoader(
            Broken(),
            batch_size=3,
            shuffle=True,
            num_workers=workers,
            generator=torch.Generator().manual_seed(11),
        )
        return job

    job = build()
    with pytest.raises(ConnectionError):
        job.train(path, every=100, epochs=1)
    found = files.read(path).parts["stepper"]
    assert found["place"]["position"]["skip"] == _first_with(9) > 0
    Broken.broken = False
    try:
        second = build()
        assert second.train(path, every=100, epochs=1) == 8 - _first_with(9)
    finally:
        Broken.broken = True
    assert_bit_identical(second.model, plain.model)


def _first_with(index: int) -> int:
    """Return which batch of the first epoch has this sample."""
    order = DataLoader(
        range(22), batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(11)
    )
    return next(place for place, batch in enumerate(order) if index in batch)


def stop() -> None:
    raise Stop


def left(how: str) -> tuple:
    """Leave the loop of epoch 1 after its first window, and save then."""
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = batches([2] * 3)
    state = None
    try:
        for epoch in stepper.epochs(3):
            for window in stepper.windows(data, size=1):
                for batch in window:
                    window.backward(mean_loss(model, *batch), items=2)
                if epoch == 1 and how == "error":
                    stop()
                if epoch == 1 and how == "break":
                    break
            if epoch == 1:
                state = stepper.state_dict()
                break
    except Stop:
        state = stepper.state_dict()
    other = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    other.load_state_dict(state)
    return list(other.epochs(3)), [other.state_dict()["place"]]


@pytest.mark.parametrize("how", ["end", "break"])
def test_an_epoch_whose_loop_is_over_is_over(how):
    assert left(how) == ([2], [None])


def test_an_epoch_that_an_error_has_left_begins_again_and_that_is_said():
    with pytest.warns(InstepWarning, match="after an error had left the loop"):
        assert left("error") == ([1, 2], [None])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"signals": ()}, "nothing says when"),
        ({"every": 0}, "every is 0"),
        ({"every": 2.5}, "every is 2.5"),
        ({"every": True}, "every is True"),
        ({"seconds": -1}, "seconds is -1"),
        ({"every": 1, "extra": [1]}, "extra is a list"),
    ],
)
def test_what_makes_no_sense_is_refused(path, options, said):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(SetupError, match=said):
        stepper.autosave(path, **options)
    assert not path.exists()


def test_two_at_once_and_other_threads_are_refused(path):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with stepper.autosave(path, every=1), pytest.raises(SetupError, match="saves itself already"):
        stepper.autosave(path, every=1)
    with stepper.autosave(path, every=1):
        pass
    caught = []

    def elsewhere():
        try:
            stepper.autosave(path, every=1)
        except SetupError as error:
            caught.append(error)
        stepper.autosave(path, every=1, signals=()).stop()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


def test_a_signal_after_the_last_loop_is_handed_on_when_all_is_saved(path):
    job, came = Run(), []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append((number, path.exists())))
    try:
        with job.stepper.autosave(path, every=100):
            for window in job.stepper.windows(job.loader, size=3):
                for x, y in window:
                    window.backward(job.loss(x, y), items=len(y))
            path.unlink()
            signal.raise_signal(signal.SIGTERM)
            assert not came
        assert came == [(signal.SIGTERM, True)]
    finally:
        signal.signal(signal.SIGTERM, before)


def with_plateau(path, seed=0, stop=None, extra=None):
    """Train with a ReduceLROnPlateau that is stepped by hand; return the rates and the weights."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(5, 2).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    kept = {"seen": 0, "plateau": plateau} if extra is None else extra(plateau)
    stepper, rates, data = instep.Stepper(model, optimizer), [], torch.ones(6, 2, 5).double()
    with stepper.autosave(path, every=2, extra=kept) as run:
        for epoch in stepper.epochs(9):
            for window in stepper.windows(data, size=2):
                for x in window:
                    window.backward(model(x).square().mean(), items=len(x))
                run.extra["seen"] = run.extra.get("seen", 0) + 1
            if stop == (epoch, "before"):
                raise Stop
            plateau.step(1.0)
            rates.append((epoch, optimizer.param_groups[0]["lr"]))
            if stop == (epoch, "after"):
                raise Stop
    return rates, [p.tolist() for p in model.parameters()], run.extra["seen"]


def test_a_plateau_that_is_stepped_by_hand_goes_on_bit_for_bit(path, tmp_path):
    rates, weights, seen = with_plateau(tmp_path / "whole.ckpt")
    assert len({rate for _, rate in rates}) == 5
    for stop in [(1, "after"), (3, "before"), (4, "after"), (6, "before")]:
        with pytest.raises(Stop):
            with_plateau(path, seed=7, stop=stop)
    end, found, also_seen = with_plateau(path, seed=8)
    # The first start had other weights, and all of them the same rates.
    assert end == rates[-len(end) :]
    assert also_seen == seen == 27
    with pytest.raises(Stop):
        with_plateau(tmp_path / "again.ckpt", stop=(4, "after"))
    assert with_plateau(tmp_path / "again.ckpt", seed=9)[1] == weights != found


def test_without_it_the_rates_are_others(path, tmp_path):
    rates, _, _ = with_plateau(tmp_path / "whole.ckpt")
    for stop in [(1, "after"), (3, "after"), (5, "after")]:
        with pytest.raises(Stop):
            with_plateau(path, stop=stop, extra=lambda _: {})
    assert with_plateau(path, extra=lambda _: {})[0] != rates[-3:]


def test_a_plateau_by_hand_in_extra(path):
    model = torch.nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
    stepper = instep.Stepper(model, optimizer)
    plateau.step(1.0)
    plateau.step(1.0)
    stepper.save(path, extra={"plateau": plateau.state_dict()})
    other = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=9)
    other.load_state_dict(stepper.load(path).extra["plateau"])
    assert other.state_dict() == plateau.state_dict()


def test_objects_that_the_checkpoint_does_not_have_begin_anew_and_that_is_said(path):
    with pytest.raises(Stop):
        with_plateau(path, stop=(0, "after"), extra=lambda _: {"best": 1})
    with pytest.warns(InstepWarning, match="the ReduceLROnPlateau begins anew"):
        with_plateau(path)


def test_an_optimizer_in_extra_keeps_the_types_of_its_state(path):
    def build():
        model = torch.nn.Linear(2, 1)
        beside = torch.nn.Linear(2, 1).bfloat16()
        other = torch.optim.SGD(beside.parameters(), lr=0.1)
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
        return beside, other, stepper

    beside, other, stepper = build()
    other.state[beside.weight]["master"] = torch.full((1, 2), 1 / 3)
    with stepper.autosave(path, every=1, extra={"other": other}) as run:
        assert run.extra["other"] is other
    beside, loaded, stepper = build()
    with stepper.autosave(path, every=1, extra={"other": loaded}) as run:
        assert run.resumed.extra["other"]["param_groups"][0]["lr"] == 0.1
    assert loaded.state[beside.weight]["master"].tolist() == [[torch.tensor(1 / 3).item()] * 2]


def test_extra_that_is_no_dict_does_not_fill_one(path):
    model = torch.nn.Linear(2, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    stepper.save(path, extra=3)
    with pytest.raises(StateError, match="is no dict, but of type int"):
        stepper.autosave(path, every=1)
