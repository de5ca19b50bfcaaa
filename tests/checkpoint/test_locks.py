"""Several writers at one path: a whole checkpoint is there at every moment, and none is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import pytest
import torch

import instep
from instep.checkpoint import disk, folders, locks
from instep.checkpoint.disk import previous_of, write_whole
from instep.checkpoint.talk import Talk
from instep.engine.ranks.world import ALONE
from instep.errors import CheckpointError
from tests.checkpoint.test_disk import found, left_in, put

# Writes a number of checkpoints, as fast as it can.
WRITER = """
import sys
from pathlib import Path
from instep.checkpoint.disk import write_whole

path, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for updates in range(first, first + count):
    write_whole(path, lambda sealing: sealing.write(str(updates).encode() * 3000), updates=updates)
"""

# Takes the lock between processes, says so, and does not come to an end.
HOLDER = """
import sys, time
from pathlib import Path
from instep.checkpoint import locks

with locks.one_process(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


class Watcher(threading.Thread):
    """Looks all the time whether a whole checkpoint is under its name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.is_over = path, False
        self.looks = 0
        self.missing: list[str] = []

    def run(self) -> None:
        while not self.is_over:
            self.looks += 1
            try:
                if found(self.path) is None:
                    self.missing.append("not there")
            except Exception as error:  # noqa: BLE001 -- whatever it is, the test tells it
                self.missing.append(repr(error))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        self.join()


def write_in_threads(path: Path, threads: int, count: int) -> list[Exception]:
    raised: list[Exception] = []

    def work(first: int) -> None:
        for updates in range(first, first + count):
            try:
                put(path, updates)
            except Exception as error:  # noqa: BLE001
                raised.append(error)

    working = [threading.Thread(target=work, args=(100 * n,)) for n in range(1, threads + 1)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    return raised


@pytest.mark.parametrize("has_locks", [True, False], ids=["locks", "no locks"])
def test_threads(tmp_path, monkeypatch, has_locks):
    if not has_locks:
        monkeypatch.setattr(locks.fcntl, "flock", no_locks)
    for turn in range(5):
        path = tmp_path / str(turn) / "run.ckpt"
        put(path, 1)
        with Watcher(path) as watcher:
            assert write_in_threads(path, threads=4, count=5) == []
        assert watcher.looks > 5
        assert watcher.missing == []
        assert found(path) != found(previous_of(path))
        assert None not in (found(path), found(previous_of(path)))
        assert left_in(path.parent) == ["run.ckpt", "run.ckpt.previous"]


def no_locks(*_: object) -> None:
    raise OSError(95, os.strerror(95))


def test_what_threads_save_stays_in_the_order_in_which_they_came(tmp_path):
    path = tmp_path / "run.ckpt"
    order = []
    began = threading.Event()

    def slow(sealing):
        began.set()
        time.sleep(0.2)
        order.append(1)
        sealing.write(b"1" * 3000)

    first = threading.Thread(target=write_whole, args=(path, slow), kwargs={"updates": 1})
    first.start()
    began.wait()
    put(path, 2)
    order.append(2)
    first.join()
    assert order == [1, 2]
    assert (found(path), found(previous_of(path))) == (2, 1)


def test_threads_at_other_paths_do_not_wait(tmp_path):
    def write(sealing):
        other = threading.Thread(target=put, args=(tmp_path / "other.ckpt", 2))
        other.start()
        other.join(20)
        assert not other.is_alive()
        sealing.write(b"1" * 3000)

    write_whole(tmp_path / "run.ckpt", write, updates=1)
    assert found(tmp_path / "other.ckpt") == 2


def start(text: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", text, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_processes(tmp_path):
    path = tmp_path / "run.ckpt"
    put(path, 1)
    with Watcher(path) as watcher:
        writers = [start(WRITER, path, 100 * n, 60) for n in (1, 2, 3)]
        ended = [(writer.communicate()[1], writer.returncode) for writer in writers]
    assert ended == [("", 0)] * 3
    assert watcher.missing == []
    last, before = found(path), found(previous_of(path))
    # Whoever came last did so as the sixtieth of its own.
    assert last in (159, 259, 359)
    assert before is not None
    assert before != last
    assert left_in(tmp_path) == ["run.ckpt", "run.ckpt.previous"]


@pytest.fixture
def holder(tmp_path):
    process = start(HOLDER, tmp_path / "run.ckpt")
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_process_that_does_not_end_is_an_error(tmp_path, monkeypatch, holder):
    monkeypatch.setattr(locks, "PATIENCE", 0.3)
    with pytest.raises(CheckpointError, match="is being replaced by another process") as caught:
        put(tmp_path / "run.ckpt", 1)
    # A run that saves itself takes it for an error of the disk, and goes on.
    assert isinstance(caught.value.__cause__, OSError)
    assert left_in(tmp_path) == ["run.ckpt.lock"]


def test_a_lock_that_a_killed_process_left_holds_nobody_up(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert left_in(tmp_path) == ["run.ckpt.lock"]
    start = time.monotonic()
    put(tmp_path / "run.ckpt", 1)
    assert time.monotonic() - start < locks.PATIENCE / 2
    assert left_in(tmp_path) == ["run.ckpt"]


def test_a_fork_holds_nobody_up(tmp_path):
    """Workers of a loader may be forked while a thread saves, and live for an epoch."""
    path = tmp_path / "run.ckpt"
    held: list[int] = []

    def write(sealing):
        sealing.write(b"1" * 3000)
        with locks.one_process(path):
            held.append(os.fork())
        if held == [0]:
            # The fork waits for no thread that it does not have, and keeps its files open.
            put(tmp_path / "of the fork.ckpt", 3)
            time.sleep(60)
            os._exit(0)

    try:
        write_whole(path, write, updates=1)
        start = time.monotonic()
        put(path, 2)
        assert time.monotonic() - start < locks.PATIENCE / 2
    finally:
        if held and held[0]:
            os.kill(held[0], signal.SIGKILL)
            os.waitpid(held[0], 0)
    assert (found(path), found(previous_of(path))) == (2, 1)


def test_a_handler_that_saves_while_names_change(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    put(path, 1)
    real = disk.sync_folder
    inside = []

    def sync(folder):
        if not inside:
            inside.append(1)
            put(path, 3)
        real(folder)

    monkeypatch.setattr(disk, "sync_folder", sync)
    put(path, 2)
    assert found(path) == 3
    assert found(previous_of(path)) in (1, 2)
    assert left_in(tmp_path) == ["run.ckpt", "run.ckpt.previous"]


def test_locks_of_paths_that_nobody_writes_are_forgotten(tmp_path):
    put(tmp_path / "run.ckpt", 1)
    assert tmp_path / "run.ckpt" not in locks._places._known


def saving_stepper(updates):
    model = torch.nn.Linear(2, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    stepper._loop.index = updates
    return stepper


def test_steppers_that_save_into_one_folder(tmp_path):
    """A folder of several ranks, gone on with by threads of one process."""
    place = tmp_path / "run"
    place.mkdir()
    raised = []

    def work(updates):
        try:
            for turn in range(3):
                saving_stepper(updates + turn).save(place)
        except Exception as error:  # noqa: BLE001
            raised.append(error)

    threads = [threading.Thread(target=work, args=(10 * n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []
    assert len(folders.finished(place)) == 2
    assert saving_stepper(0).load(place).updates in (12, 22, 32)
    assert not list(place.glob("*/writing"))


def test_what_is_being_written_by_another_job_is_not_removed(tmp_path):
    place = tmp_path / "run"
    parts = {"version": 1}
    slow = folders.Write(place, parts, {}, 1, Talk(ALONE))
    slow.tensors()
    killed = place / "00000002-update-2"
    killed.mkdir()
    (killed / "writing").touch()
    for updates in (3, 4, 5):
        quick = folders.Write(place, parts, {}, updates, Talk(ALONE))
        quick.tensors()
        quick.finish()
    assert slow.folder.is_dir()
    assert not killed.exists()
    slow.finish()
    assert [path.name[-1] for path in folders.finished(place)] == ["4", "5"]


def test_one_stepper_saves_from_several_threads(tmp_path):
    path, stepper = tmp_path / "run.ckpt", saving_stepper(7)
    raised = []

    def work(wait):
        for _ in range(5):
            try:
                stepper.save(path, wait=wait)
            except Exception as error:  # noqa: BLE001
                raised.append(error)

    threads = [threading.Thread(target=work, args=(wait,)) for wait in (True, False, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stepper.load(path).updates == 7
    assert raised == []
    assert left_in(tmp_path) == ["run.ckpt", "run.ckpt.previous"]


def interrupted_at(count, save):
    """Save, with Ctrl-C where a function of ours begins or ends, as Python would have it."""
    seen = 0

    def trace(frame, event, _arg):
        nonlocal seen
        if not frame.f_code.co_filename.endswith(("locks.py", "disk.py", "background.py")):
            return None
        if event in ("call", "return"):
            seen += 1
            if seen == count:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        save()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return seen >= count


# What an interrupt has left open is closed by the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("wait", [True, False], ids=["", "background"])
def test_an_interrupt_anywhere_holds_nobody_up(tmp_path, monkeypatch, wait):
    monkeypatch.setattr(locks, "PATIENCE", 0.5)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a few hundred times
    count = 0
    is_interrupted = True
    while is_interrupted:
        count += 1
        path, stepper = tmp_path / str(count) / "run.ckpt", saving_stepper(1)
        stepper.save(path)
        stepper._loop.index = 2
        is_interrupted = interrupted_at(count, lambda s=stepper, p=path: s.save(p, wait=wait))
        assert saving_stepper(0).load(path).updates in (1, 2)
        stepper._loop.index = 3
        stepper.save(path)
        assert saving_stepper(0).load(path).updates == 3
        assert left_in(path.parent) == ["run.ckpt", "run.ckpt.previous"]
    assert count > (30 if wait else 5)
