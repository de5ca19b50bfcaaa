"""One thread is watched: others train as they would, and are counted."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

import pytest
import torch

import instep
from instep.watching.patches import Patches
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
threads = [threading.Thread(target=train, args=(seed, 400)) for seed in range(3)]
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
        sum(int(count.replace(",", "")) for count in re.findall(r"([\d,]+) updates", line))
        for line in done.stderr.splitlines()
    )
    assert watched >= 400
    assert watched + elsewhere == 1200


def test_a_thread_after_the_other_is_watched():
    job = run(TRAIN + IN_TURN)
    assert sum(job.series.updates.values()) == 15
    assert job.recorder.elsewhere == 0
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
    assert job.recorder.elsewhere == 5
    assert "5 updates were made in other threads" in job.summary()


def test_the_first_thread_that_trains_stays_the_one():
    job = run(TRAIN + BESIDE)
    assert sum(job.series.updates.values()) == 10
    assert job.recorder.elsewhere == 5
    assert "5 updates were made in other threads" in "\n".join(job.summary().splitlines())


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


class TestPatches:
    """Which threads are watched, without a job around."""

    def test_the_thread_that_made_them(self):
        assert Patches().is_on

    def test_another_one_comes_when_nothing_was_trained(self):
        patches, seen = Patches(), []
        in_thread(lambda: seen.append(patches.is_on))
        assert seen == [True]

    def test_and_not_when_something_was(self):
        patches, seen, met = Patches(), [], []
        patches.settles()
        patches.on_stranger = met.append
        in_thread(lambda: seen.append((patches.is_on, patches.is_elsewhere)))
        in_thread(lambda: seen.append((patches.is_on, patches.is_elsewhere)))
        assert seen == [(False, True)] * 2
        assert met  # once or twice: the second may get the number of the first
        assert patches.is_on

    def test_switched_off_nothing_is_elsewhere(self):
        patches, seen = Patches(), []
        patches.settles()
        patches.is_on = False
        in_thread(lambda: seen.append((patches.is_on, patches.is_elsewhere)))
        assert seen == [(False, False)]

    @pytest.mark.parametrize("is_going", [False, True])
    def test_whoever_looks_is_told_whether_another_goes_backward(self, is_going):
        patches, is_there, may_end = Patches(), threading.Event(), threading.Event()
        patches.settles()

        def backward():
            is_there.set()
            may_end.wait(30)

        thread = threading.Thread(target=lambda: patches.unseen(backward))
        if is_going:
            thread.start()
            is_there.wait(30)
        with patches.alone() as is_alone:
            assert is_alone is not is_going
        may_end.set()
        if is_going:
            thread.join()

    def test_nobody_begins_a_backward_meanwhile(self):
        patches, order = Patches(), []
        patches.settles()
        thread = threading.Thread(target=lambda: patches.unseen(lambda: order.append("backward")))
        with patches.alone():
            thread.start()
            thread.join(0.2)
            order.append("looked")
        thread.join()
        assert order == ["looked", "backward"]

    def test_a_backward_inside_of_a_backward_waits_for_nobody(self):
        patches, done = Patches(), []
        patches.settles()
        in_thread(lambda: done.append(patches.unseen(lambda: patches.unseen(lambda: 3))))
        assert done == [3]
