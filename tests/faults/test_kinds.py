"""A few of each kind of fault; `make faults` tries many."""

from __future__ import annotations

import random

import pytest

from tests.faults import kinds


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return {workers: kinds.whole_run(folder / str(workers), workers) for workers in (0, 2)}


@pytest.fixture
def dice(request):
    return random.Random(request.node.name)


@pytest.mark.parametrize("go", range(4))
def test_a_full_disk(tmp_path, dice, whole, go):
    assert kinds.full_disk(tmp_path / "job", dice, whole[0]) == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_raises(tmp_path, dice, whole, workers):
    assert kinds.raising_loader(tmp_path / "job", dice, whole[workers], workers) == 0


def test_a_worker_that_is_killed(tmp_path, dice, whole):
    assert kinds.killed_worker(tmp_path / "job", dice, whole[2]) == 0


@pytest.mark.parametrize("go", range(6))
def test_a_bad_number(dice, go):
    kinds.bad_number(dice)


@pytest.mark.parametrize("go", range(3))
def test_no_memory_in_a_loop(tmp_path, dice, whole, go):
    assert kinds.no_memory_in_a_loop(tmp_path / "job", dice, whole[0]) == 0


@pytest.mark.parametrize("go", range(4))
def test_no_memory_in_a_step(dice, go):
    kinds.no_memory_in_a_step(dice)
