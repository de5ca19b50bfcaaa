"""What was not seen is said, on the page and, where it would be missed, in the summary."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import instep
from instep.watching.record_of import record_of
from tests.watching.jobs import run

STARTED = "The job started {} by itself: what happens there is not watched."


def nothing():
    """Run in another process, and end."""


def start(method, count=1):
    context = multiprocessing.get_context(method)
    processes = [context.Process(target=nothing) for _ in range(count)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("count", "said"), [(1, "1 process"), (2, "2 processes")])
def test_processes_of_the_job_are_not_watched(count, said):
    with instep.watch() as job:
        start("fork", count)
    assert job.summary().splitlines()[1] == STARTED.format(said)
    assert STARTED.format(said) in record_of(job).unseen
    assert job.seam.faults == []


def test_those_of_torch_as_well():
    with instep.watch() as job:
        torch.multiprocessing.start_processes(print_nothing, nprocs=1, start_method="fork")
    assert STARTED.format("1 process") in record_of(job).unseen


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_by_hand_as_well():
    with instep.watch() as job:
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    assert job.summary().splitlines()[1] == STARTED.format("1 process")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_nothing_is_said_in_a_fork(capfd):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with instep.watch():
        child = os.fork()
        if not child:
            for _ in range(9):
                model(torch.ones(3, 2)).mean().backward()
                optimizer.step()
            os._exit(0)
        os.waitpid(child, 0)
    assert "INS101" not in capfd.readouterr().err


def test_a_wrong_call_is_told_as_it_would_be():
    with pytest.raises(TypeError) as before:
        subprocess.Popen()
    with instep.watch(), pytest.raises(TypeError) as during:
        subprocess.Popen()
    assert str(during.value) == str(before.value)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([sys.executable, "-c", "pass"], [STARTED.format("1 process")]),
        (["true"], []),
    ],
)
def test_a_program_is_told_if_it_may_train(command, said):
    with instep.watch() as job:
        subprocess.run(command, check=True)
    assert job.summary().splitlines()[1:] == said
    assert job.seam.faults == []


def print_nothing(rank):
    del rank


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_of_a_loader_and_servers_train_nothing():
    with instep.watch() as job:
        list(DataLoader(TensorDataset(torch.ones(4, 2)), num_workers=1))
        with multiprocessing.get_context("fork").Manager():
            pass
    assert "watched" not in job.summary()
    assert record_of(job).unseen == ()


def test_nothing_of_it_is_left():
    def parts():
        return multiprocessing.process.BaseProcess.start, subprocess.Popen.__init__, os.fork

    before = parts()
    with instep.watch():
        assert all(now is not was for now, was in zip(parts(), before, strict=True))
    assert parts() == before


BY_HAND = """
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for update in range(4):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).mean().backward()
    {step}
"""
COMPILED = """
@torch.compile(backend="eager")
def step():
    optimizer.step()
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_step_is_not_denied():
    job = run(COMPILED + BY_HAND.format(step="step()"))
    first, second = job.summary().splitlines()
    assert first == "No update was seen: there was nothing to judge."
    assert second.startswith("Weights changed all the same: a step that is compiled")
    [said] = [each for each in record_of(job).unseen if "eights" in each]
    assert said.startswith("Weights changed between a backward and its step, or without a step")
    assert "What happens inside weights" not in said


WHOLE = """
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{load}
@torch.compile(backend="eager")
def update(x):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
{runs}
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_whole_update_that_is_compiled_is_not_denied():
    job = run(WHOLE.format(load="", runs="for _ in range(4):\n    update(torch.ones(3, 4))"))
    _, second = job.summary().splitlines()
    assert second.startswith("Weights changed all the same: a step that is compiled")
    [said] = [each for each in record_of(job).unseen if "eights" in each]
    assert said.startswith("Weights changed between a backward and its step, or without a step")


def test_weights_that_are_loaded_are_no_update():
    job = run(WHOLE.format(load="model.load_state_dict(model.state_dict())", runs=""))
    assert job.summary() == "No update was seen: there was nothing to judge.\n"


def test_steps_that_are_seen_are_not_said_to_be_missed():
    job = run(BY_HAND.format(step="optimizer.step()"))
    assert job.summary() == "Watched 4 updates of `optimizer`: no problems found.\n"
    assert record_of(job).unseen == ()
