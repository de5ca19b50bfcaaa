"""SIGTERM: the work is saved at the next safe point, and then it ends as it would have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch

import instep
from instep.checkpoint import files
from instep.engine.signals import Signals
from instep.errors import InstepWarning
from tests.engine.kit import assert_bit_identical, batches, mean_loss, mlp
from tests.engine.test_state import Job

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ckpt"


@pytest.fixture
def handled():
    """A handler of the user's own, in place of the default, which would end the tests."""
    calls = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    yield calls
    signal.signal(signal.SIGTERM, before)


def train(path, *, at: int | None = None, then=None, size: int = 4, **options):
    """One epoch of 8 micro-batches; a signal comes before the backward of the one at `at`."""
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with stepper.autosave(path, **options) as run:
        seen = 0
        for _ in stepper.epochs(1):
            for window in stepper.windows(batches([2] * 8), size=size):
                for batch in window:
                    if seen == at:
                        signal.raise_signal(signal.SIGTERM)
                        assert files.read(path).updates == 0
                    window.backward(mean_loss(model, *batch), items=2)
                    seen += 1
                    if then is not None:
                        then(seen)
    return model, run


@pytest.mark.parametrize("at", range(8))
def test_it_is_saved_at_the_next_micro_batch_and_the_old_handler_called(path, handled, at):
    ours = signal.getsignal(signal.SIGTERM)
    positions = []

    def look(seen):
        if handled:
            positions.append(files.read(path).parts["stepper"]["place"]["position"]["skip"])

    model, _ = train(path, at=at, then=look)
    # The user's handler did not end the run, so that it went on.
    assert handled == [signal.SIGTERM]
    assert positions == [at + 1] * (7 - at)
    assert signal.getsignal(signal.SIGTERM) is ours
    plain, _ = train(path.with_name("plain"))
    assert_bit_identical(model, plain)


def test_a_handler_that_raises_leaves_a_checkpoint_to_go_on_from(path, handled):
    class Leave(Exception):
        pass

    def leave(number, frame):
        raise Leave

    signal.signal(signal.SIGTERM, leave)
    with pytest.raises(Leave):
        train(path, at=5)
    assert signal.getsignal(signal.SIGTERM) is leave
    model, run = train(path)
    assert run.resumed.updates == 1
    plain, _ = train(path.with_name("plain"))
    assert_bit_identical(model, plain)


def test_a_handler_that_was_set_later_and_ends_the_run(path, handled):
    class Ends:
        def told(self, number, frame):
            raise KeyboardInterrupt

    def train(when, handler):
        model = mlp()
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with stepper.autosave(path.with_name(when), every=2):
            if handler is not None:
                signal.signal(signal.SIGTERM, handler)
            for window in stepper.windows(batches([2] * 6), size=1):
                for x, y in window:
                    window.backward(mean_loss(model, x, y), items=len(y))
                if window.index == 2:
                    if when == "by itself":
                        raise KeyboardInterrupt
                    signal.raise_signal(signal.SIGTERM)

    words = "SIGTERM has ended this run, and nothing was saved then(.|\n)*made after 2 updates"
    with pytest.warns(InstepWarning, match=words), pytest.raises(KeyboardInterrupt):
        train("later", Ends().told)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InstepWarning)
        with pytest.raises(KeyboardInterrupt):
            train("by itself", Ends().told)
        signal.signal(signal.SIGTERM, Ends().told)
        with pytest.raises(KeyboardInterrupt):
            train("before", None)


def test_signals_that_are_ignored_are_saved_at_all_the_same(path, handled):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    seen = []
    train(path, at=2, then=lambda n: seen.append(files.read(path).updates), size=2)
    assert seen[3:] == [1] * 5
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_a_signal_that_comes_again_at_once_is_the_same(path, handled, capfd):
    """torchrun passes on what the whole process group was told already."""

    def again(seen):
        if seen == 5:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert handled == []
        if seen == 6:
            assert handled == [signal.SIGTERM]
            assert files.read(path).parts["stepper"]["place"]["position"]["skip"] == 5

    train(path, then=again)
    assert handled == [signal.SIGTERM]
    assert capfd.readouterr().err == f"instep: saved after 1 updates: {path} (SIGTERM)\n"


@pytest.mark.parametrize(("later", "calls"), [(0.0, 0), (4.9, 0), (5.1, 1)])
def test_a_later_signal_does_not_wait(handled, later, calls):
    now = [100.0]
    signals = Signals([signal.SIGTERM], 30.0, lambda number: None, clock=lambda: now[0])
    signals.install()
    try:
        signal.raise_signal(signal.SIGTERM)
        assert signals.received == signal.SIGTERM
        now[0] += later
        signal.raise_signal(signal.SIGTERM)
        assert handled == [signal.SIGTERM] * calls
        assert (signals.received is None) == bool(calls)
    finally:
        signals.restore()


def test_another_signal_does_not_wait_either(handled):
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signals = Signals([signal.SIGTERM, signal.SIGUSR1], 30.0, lambda number: None)
    signals.install()
    try:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR1)
        assert handled == [signal.SIGTERM]
    finally:
        signals.restore()
        signal.signal(signal.SIGUSR1, before)


def test_no_safe_point_before_the_deadline_is_said(path, handled):
    def slow(seen):
        if seen == 2:
            signal.raise_signal(signal.SIGTERM)
            until = time.monotonic() + 30
            while not handled and time.monotonic() < until:
                time.sleep(0.01)

    with pytest.warns(InstepWarning, match="SIGTERM came, and no safe point before its deadline"):
        train(path, then=slow, deadline=0.05)
    assert handled == [signal.SIGTERM]
    assert not [t for t in threading.enumerate() if isinstance(t, threading.Timer)]


def test_handlers_that_somebody_set_since_stay(path, handled):
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    run = stepper.autosave(path, every=1)
    other = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    run.stop()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    signal.signal(signal.SIGTERM, other)


def test_another_signal_is_chosen(path):
    calls = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
    term = signal.getsignal(signal.SIGTERM)
    try:
        model = mlp()
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with stepper.autosave(path, signals=[signal.SIGUSR1]):
            assert signal.getsignal(signal.SIGTERM) is term
            for window in stepper.windows(batches([2] * 2), size=1):
                for batch in window:
                    window.backward(mean_loss(model, *batch), items=2)
                if window.index == 0:
                    signal.raise_signal(signal.SIGUSR1)
                else:
                    assert files.read(path).updates == 1
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert calls == [signal.SIGUSR1]


def test_a_fork_ends_when_it_is_told_to(path, handled):
    signals = Signals([signal.SIGTERM], 30.0, lambda number: None)
    signals.install()
    is_up, up = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(up, b"!")  # Python forgets signals that come while it forks
        time.sleep(30)
        os._exit(1)
    os.read(is_up, 1)
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    signals.restore()
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert signals.received is None


# A scheduler ends a job by telling all of its processes: its loading workers, too.
JOB = """
import os, signal, sys
import torch
from tests.engine.test_state import Job

path, stop, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
job = Job(workers=workers)
seen = 0
with job.stepper.autosave(path, every=100):
    for epoch in job.stepper.epochs(2):
        for window in job.stepper.windows(job.loader, size=3):
            for x, y in window:
                seen += 1
                if seen == stop:
                    os.killpg(os.getpgid(0), signal.SIGTERM)
                window.backward(job.loss(x, y), items=len(y))
torch.save(job.model.state_dict(), path + ".model")
print("seen", seen)
"""


def run_job(path: Path, stop: int, workers: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", JOB, str(path), str(stop), str(workers)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_ends_by_the_signal_and_goes_on(path, workers):
    whole = Job(workers=workers)
    for _ in range(2):
        whole.epoch()
    ended = run_job(path, 11, workers)
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    assert files.read(path).parts["stepper"]["place"]["position"]["skip"] == 3
    again = run_job(path, 0, workers)
    assert "seen 5" in again.stdout, again.stderr
    found = torch.load(f"{path}.model", weights_only=True)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(found[name], tensor)
