import gc
import subprocess
import sys
import threading
import weakref

import pytest

from instep.check import workers
from instep.check.outcome import Outcome
from instep.check.workers import Task, cores, rare_collections, spread


def upper():
    return lambda task: Outcome(task.path.upper())


def test_little_work_is_done_here():
    tasks = [Task("a", 10, named=False), Task("b", 20, named=False)]
    assert [(task.path, o.path) for task, o in spread(tasks, upper, jobs=8)] == [
        ("a", "A"),
        ("b", "B"),
    ]
    assert list(spread([], upper, jobs=8)) == []


POOL = """
import os, sys
from instep.check.outcome import Outcome
from instep.check.workers import Task, spread
from instep.errors import CheckError
tasks = [Task(str(n), 50_000 + n, named=False) for n in range(20)]
def make():
    def work(task):
        if {death} and task.path == "7":
            os._exit(1)
        return Outcome(task.path, loops=os.getpid())
    return work
try:
    done = list(spread(tasks, make, jobs=2))
except CheckError as error:
    print(error)
else:
    assert sorted(t.path for t, _ in done) == sorted(o.path for _, o in done)
    assert len(done) == 20
    assert os.getpid() not in {{o.loops for _, o in done}}
    print("done")
"""


@pytest.mark.parametrize("death", [False, True])
def test_a_pool_of_processes(death):
    code = POOL.format(death=death)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ("a process that checks files died" if death else "done") in done.stdout


def test_processes_are_forked_only_from_a_single_thread(monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert workers._context().get_start_method() == "spawn"
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert workers._context().get_start_method() == "spawn"


def test_cores(monkeypatch):
    assert cores() >= 1
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    assert cores() >= 1


def test_the_garbage_collector_is_left_as_it_was():
    usual = gc.get_threshold()
    with pytest.raises(RuntimeError), rare_collections():
        assert gc.get_threshold() > usual
        raise RuntimeError
    assert gc.get_threshold() == usual


class Cycle:
    """What only the collector of garbage can drop."""

    def __init__(self):
        self.me = self


@pytest.mark.parametrize(
    ("much", "found"),
    [(1, [[], [False], [False, False]]), (10**9, [[], [True], [True, True]])],
)
def test_what_files_leave_behind_is_gone_when_it_is_much(monkeypatch, much, found):
    monkeypatch.setattr(workers, "_MUCH", much)
    left = []

    def work(task):
        alive = [one() is not None for one in left]
        left.append(weakref.ref(Cycle()))
        return alive

    gc.disable()
    try:
        tasks = [Task(name, 1, False) for name in "abc"]
        assert [alive for _, alive in spread(tasks, lambda: work, jobs=1)] == found
    finally:
        gc.enable()
        gc.collect()


def test_where_nobody_collects_garbage_it_is_collected_only_inside():
    gc.disable()
    try:
        with rare_collections():
            assert gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
