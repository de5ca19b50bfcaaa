"""One run saves itself at a path; a second one is refused in this process, and said of others."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import warnings

import pytest
import torch

import instep
from instep.checkpoint import disk
from instep.engine import claims
from instep.errors import InstepWarning, SetupError
from tests.engine.kit import batches, mean_loss, mlp


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ckpt"


def stepper_of(seed=0):
    model = mlp(seed)
    return instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))


def train(stepper, windows=2):
    (model,) = stepper.models
    for window in stepper.windows(batches([2] * windows), size=1):
        for x, y in window:
            window.backward(mean_loss(model, x, y), items=len(y))


def test_a_second_run_at_one_path_is_refused(path):
    first, second = stepper_of(), stepper_of(1)
    with first.autosave(path, every=1):
        train(first)
        seal = claims.seal_of(path)
        link = path.with_name("link.ckpt")
        link.symlink_to(path)
        for name in (path, link):
            with pytest.raises(SetupError, match="another run of this process saves itself"):
                second.autosave(name, every=1)
        assert claims.seal_of(path) == seal
        with second.autosave(path.with_name("other.ckpt"), every=1):
            train(second)
    with second.autosave(path, every=1) as run:
        assert run.resumed.updates == 2


def test_who_comes_second_into_its_block_is_refused(path):
    """Both were made before one of them has begun: by threads, say."""
    first, second = stepper_of(), stepper_of(1)
    one, other = first.autosave(path, signals=(), every=1), second.autosave(path, every=1)
    with one:
        with pytest.raises(SetupError, match="another run of this process"), other:
            pass
        train(first)
    # It has let go of everything.
    with second.autosave(path, every=1):
        train(second)


def test_a_run_that_an_error_has_ended_holds_nobody_up(path):
    first = stepper_of()
    with pytest.raises(KeyError), first.autosave(path, every=1):
        raise KeyError
    left = stepper_of().autosave(path, every=1)  # of a cell that is run again
    with stepper_of().autosave(path, every=1):
        pass
    left.stop()


def test_threads_of_which_one_is_first(path):
    """Whoever is refused is told; whoever is not loses nothing."""
    raised, finished = [], []

    def work(seed):
        stepper = stepper_of(seed)
        try:
            with stepper.autosave(path, every=1, signals=(), wait=bool(seed % 2)):
                ready.wait()
                train(stepper, 4)
            finished.append(seed)
        except SetupError as error:
            ready.abort()
            raised.append(error.what)
        except threading.BrokenBarrierError:
            finished.append(seed)

    ready = threading.Barrier(3)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(raised) + len(finished) == 3
    assert raised
    assert all("another run of this process" in what for what in raised)
    assert stepper_of().load(path).path == path
    assert not [p for p in path.parent.iterdir() if not p.name.startswith(path.name)]


def said_by(stepper, path, between, **options):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with stepper.autosave(path, every=1, **options):
            train(stepper)
            between()
            train(stepper)
            between()
            train(stepper)
    return [str(w.message) for w in warned if issubclass(w.category, InstepWarning)]


@pytest.mark.parametrize("wait", [True, False], ids=["", "background"])
def test_somebody_elses_checkpoints_are_said_once(path, wait):
    mine, other = stepper_of(), stepper_of(1)

    def save():
        if mine._desk.writing is not None:
            mine._desk.writing.wait()
        other.save(path)

    (text,) = said_by(mine, path, save, wait=wait)
    assert text.startswith(f"somebody else saves at {path}.")


def test_a_folder_into_which_somebody_else_saves(path):
    path.mkdir()
    (text,) = said_by(stepper_of(), path, lambda: stepper_of(1).save(path))
    assert text.startswith(f"somebody else saves at {path}.")


@pytest.mark.parametrize("how", ["nothing", "by hand", "removed", "moved back"])
def test_what_is_this_runs_own_is_not_said(path, how):
    stepper = stepper_of()

    def between():
        if how == "by hand":
            stepper.save(path)
        elif how == "removed":
            path.unlink()
        elif how == "moved back":
            shutil.move(path, path.with_suffix(".aside"))
            shutil.copy(path.with_suffix(".aside"), path)

    assert said_by(stepper, path, between) == []


def test_one_that_failed_when_it_was_in_place_is_this_runs_own(path, monkeypatch):
    real, calls = disk.sync_folder, []

    def sync(folder):
        calls.append(folder)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(folder)

    monkeypatch.setattr(disk, "sync_folder", sync)
    (text,) = said_by(stepper_of(), path, lambda: None)
    assert text.startswith("no checkpoint after")
