"""One thread is watched: others train as they would, and are counted."""

from __future__ import annotations

import _thread
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

import instep
from instep.watching.threads import Tally, Threads
from tests.watching.jobs import found, run

TRAIN = """
import threading

def train(seed, updates):
    draw = torch.Generator().manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw) * 0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(updates):
        x = torch.randn(8, 16, generator=draw)
        y = torch.randint(0, 4, (8,), generator=draw)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    sums[seed] = sum(weight.double().sum().item() for weight in model.parameters())

sums = {}
"""
SIDE_BY_SIDE = """
threads = [threading.Thread(target=train, args=(seed, 150)) for seed in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
IN_TURN = """
for seed in range(3):
    thread = threading.Thread(target=train, args=(seed, 5))
    thread.start()
    thread.join()
"""
BESIDE = """
train(0, 5)
thread = threading.Thread(target=train, args=(1, 5))
thread.start()
thread.join()
train(2, 5)
"""
NEVER_CLEARED = TRAIN.replace("        optimizer.zero_grad()\n", "")


def program(tmp_path, source):
    """Run a program of its own under a watch: where a process would end, no test can."""
    script = tmp_path / "train.py"
    script.write_text(
        f"import torch\ntorch.set_num_threads(1)\n{source}\nprint(sorted(sums.items()))"
    )
    command = [sys.executable, "-m", "instep", "watch", str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_threads_side_by_side_end_as_they_would(tmp_path):
    done = program(tmp_path, TRAIN + SIDE_BY_SIDE)
    assert done.returncode == 0, done.stderr[-2000:]
    plain = run(TRAIN + SIDE_BY_SIDE, watched=False).left["sums"]
    assert done.stdout.strip() == str(sorted(plain.items()))
    # Who has ended makes room for the next, so that more than a third may have been watched.
    watched, elsewhere = (
        sum(int(count.replace(",", "")) for count in re.findall(r"([\d,]+) updates?", line))
        for line in done.stderr.splitlines()
    )
    assert watched > 0
    assert watched + elsewhere == 450


def test_a_thread_after_the_other_is_watched():
    job = run(TRAIN + IN_TURN)
    assert sum(job.series.updates.values()) == 15
    assert job.recorder.elsewhere.total() == 0
    assert "other threads" not in job.summary()


def test_what_is_wrong_in_the_only_thread_that_trains_is_found():
    job = run(NEVER_CLEARED + IN_TURN)
    line = NEVER_CLEARED.splitlines().index("        optimizer.step()") + 1
    assert {(code, line) for code, _ in found(job)} == {("INS101", line)}


def test_what_is_wrong_in_another_thread_is_not_judged():
    job = run(
        NEVER_CLEARED.replace("def train(", "def never(")
        + TRAIN.replace("\nsums = {}", "")
        + (
            "train(0, 5)\nthread = threading.Thread(target=never, args=(1, 5))\n"
            "thread.start()\nthread.join()\n"
        )
    )
    assert found(job) == []
    assert job.recorder.elsewhere.total() == 5
    assert "5 updates were made in other threads" in job.summary()


def test_the_first_thread_that_trains_stays_the_one():
    job = run(TRAIN + BESIDE)
    assert sum(job.series.updates.values()) == 10
    assert job.recorder.elsewhere.total() == 5
    assert "5 updates were made in other threads" in "\n".join(job.summary().splitlines())


EPOCHS = """
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def epoch():
    for _ in range(5):
        model(torch.ones(3, 4)).mean().backward()
        optimizer.step()

for _ in range(3):
    model.train()
    thread = threading.Thread(target=epoch)
    thread.start()
    thread.join()
    model.eval()
"""
TRIED = """
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(3, 4)).mean().backward()

def train():
    for _ in range(30):
        model(torch.ones(3, 4)).mean().backward()
        optimizer.step()

thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
SHARED = """
optimizers, models = [], []
for _ in range(4):
    models.append(torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Linear(64, 4)))
    optimizers.append(torch.optim.SGD(models[-1].parameters(), lr=1e-3))

def train(number, updates):
    for _ in range(updates):
        optimizers[number].zero_grad()
        models[number](torch.ones(8, 16)).square().mean().backward()
        optimizers[number].step()

for number in range(4):
    train(number, 1)
threads = [threading.Thread(target=train, args=(number, 300)) for number in range(1, 4)]
for thread in threads:
    thread.start()
train(0, 300)
for thread in threads:
    thread.join()
sums = {}
"""


def test_a_thread_for_each_epoch_is_watched_whatever_is_done_between_them():
    job = run("import threading" + EPOCHS)
    assert sum(job.series.updates.values()) == 15
    assert "INS101" in {code for code, _ in found(job)}


def test_a_backward_that_was_tried_out_is_no_training():
    job = run("import threading" + TRIED)
    assert sum(job.series.updates.values()) >= 27
    assert "INS101" in {code for code, _ in found(job)}


def test_what_one_thread_has_made_and_others_train(tmp_path):
    done = program(tmp_path, f"import threading\n{SHARED}")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "900 updates were made in other threads" in done.stderr


def test_a_thread_that_goes_on_after_the_program_is_waited_for(tmp_path):
    source = NEVER_CLEARED + "threading.Thread(target=train, args=(0, 30)).start()\n"
    done = program(tmp_path, source)
    assert "Watched 30 updates" in done.stderr
    assert "INS101" in done.stderr


def test_an_executor_that_nobody_has_shut_down_ends_with_the_program(tmp_path):
    source = NEVER_CLEARED + (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1)\n"
        "pool.submit(train, 0, 30)\n"
    )
    done = program(tmp_path, source)
    assert "Watched 30 updates" in done.stderr
    assert done.returncode == 0


def test_weights_that_another_thread_has_moved_are_no_riddle():
    source = TRAIN + "train(0, 1)\n" + SIDE_BY_SIDE.replace("150", "3")
    assert "Weights changed all the same" not in run(source).summary()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_of_another_thread_is_a_process_of_its_own():
    weight = torch.nn.Parameter(torch.ones(3))
    left = []

    def fork():
        child = os.fork()
        if not child:
            signal.alarm(60)  # what another thread of the parent holds is held here for ever
            weight.sum().backward()
            os._exit(int(job.seam.patches.is_open))
        left.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with instep.watch(live=False) as job:
        weight.sum().backward()
        with job.seam.patches.threads.alone():
            in_thread(fork)
    assert left == [0]
    assert "1 process" in job.summary()


def test_one_update_is_one():
    job = run(
        TRAIN + "train(0, 5)\nthread = threading.Thread(target=train, args=(1, 1))\n"
        "thread.start()\nthread.join()\n"
    )
    assert "1 update was made in other threads" in job.summary()


def test_what_another_thread_adds_is_not_noted():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with instep.watch(live=False) as job:
        for _ in range(3):
            optimizer.zero_grad()
            weight.sum().backward()
            optimizer.step()
        noted = list(job.book.grown)
        in_thread(lambda: weight.sum().backward())  # not yet: it is met by its own backward
        in_thread(lambda: weight.sum().backward())
        assert list(job.book.grown) == noted
    assert not weight._post_accumulate_grad_hooks


def in_thread(act):
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def elsewhere(threads):
    """Return whether another thread is heard of."""
    heard = []
    in_thread(lambda: heard.append(threads.hears()))
    return not heard[0]


class TestThreads:
    """Which threads are watched, without a job around."""

    def test_all_are_heard_of_before_one_goes_backward(self):
        threads = Threads()
        assert threads.hears()
        assert not elsewhere(threads)

    def test_the_first_that_goes_backward_is_the_one(self):
        threads = Threads()
        assert threads.claims()
        assert elsewhere(threads)
        assert threads.hears()

    def test_others_are_met_before_they_do_anything(self):
        threads, met = Threads(), []
        threads.on_stranger = met.append
        threads.claims()
        in_thread(threads.hears)
        assert len(met) == 1
        assert met == list(threads.strangers)

    def test_when_it_has_ended_all_are_heard_of_and_the_next_one_is_it(self):
        threads = Threads()
        in_thread(threads.claims)
        assert threads.hears()
        assert not elsewhere(threads)
        assert threads.claims()
        assert elsewhere(threads)

    def test_who_claims_again_stays_the_one(self):
        threads = Threads()
        assert threads.claims()
        assert threads.claims()
        assert threads.home == threading.get_ident()
        assert elsewhere(threads)

    def test_one_that_python_did_not_start_is_known_to_have_ended(self):
        threads, claimed = Threads(), threading.Event()
        _thread.start_new_thread(lambda: threads.claims() and claimed.set(), ())
        assert claimed.wait(30)
        while threads.home:
            time.sleep(0.001)
        assert threads.claims()

    def test_one_that_has_only_tried_a_backward_gives_way(self):
        threads, claimed = Threads(), []
        threads.backwards = lambda: 1
        threads.claims()
        in_thread(lambda: claimed.extend(threads.claims() for _ in range(5)))
        assert claimed == [False, False, False, True, True]

    @pytest.mark.parametrize("says", [iter(range(9)), itertools.repeat(None)])
    def test_one_that_goes_on_or_has_made_an_update_does_not(self, says):
        threads, claimed = Threads(), []
        threads.backwards = lambda: next(says)
        threads.claims()
        in_thread(lambda: claimed.extend(threads.claims() for _ in range(5)))
        assert not any(claimed)

    def test_one_that_python_did_not_start_belongs_to_a_backward(self):
        threads, heard, done = Threads(), [], threading.Event()
        threads.claims()

        def act():
            heard.append(threads.hears())
            threads.goes_back = lambda: False
            heard.append(threads.hears())
            done.set()

        threads.goes_back = lambda: True
        _thread.start_new_thread(act, ())
        assert done.wait(30)
        assert heard == [True, False]

    @pytest.mark.parametrize("is_going", [False, True])
    def test_whoever_looks_is_told_whether_another_goes_backward(self, is_going):
        threads, is_there, may_end = Threads(), threading.Event(), threading.Event()
        threads.claims()

        def backward():
            is_there.set()
            may_end.wait(30)

        thread = threading.Thread(target=lambda: threads.unseen(backward))
        if is_going:
            thread.start()
            is_there.wait(30)
        with threads.alone() as is_alone:
            assert is_alone is not is_going
        may_end.set()
        if is_going:
            thread.join()

    def test_nobody_begins_a_backward_meanwhile(self):
        threads, order = Threads(), []
        threads.claims()
        thread = threading.Thread(target=lambda: threads.unseen(lambda: order.append("backward")))
        with threads.alone():
            thread.start()
            thread.join(0.2)
            order.append("looked")
        thread.join()
        assert order == ["looked", "backward"]

    def test_a_backward_inside_of_a_backward_waits_for_nobody(self):
        threads, done = Threads(), []
        threads.claims()
        in_thread(lambda: done.append(threads.unseen(lambda: threads.unseen(lambda: 3))))
        assert done == [3]


def test_a_number_that_several_threads_add_to_loses_none():
    tally, turns = Tally(), 3000

    def add():
        for _ in range(turns):
            tally.add()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=add) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert tally.total() == 8 * turns
