"""The cases of tests/gpu/test_ranks_on_one_gpu.py, on the CPU: that they can pass, and can fail."""

from __future__ import annotations

import pytest

from tests.distributed import devices
from tests.distributed.devices import KINDS

DEVICE = "cpu"


def test_gloo_has_what_fsdp_needs(two):
    assert two.run(devices.collectives_problem, DEVICE) == ["", ""]


@pytest.mark.parametrize("kind", KINDS)
def test_updates(two, kind):
    devices.check_updates(two, kind, DEVICE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_is_skipped(two, kind):
    devices.check_overflow(two, kind, DEVICE)


@pytest.mark.parametrize("kind", KINDS)
def test_out_of_memory_on_one_rank(two, kind):
    devices.check_out_of_memory(two, kind, DEVICE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_that_one_rank_replays(two, kind):
    devices.check_replayed(two, kind, DEVICE)


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoints(two, tmp_path, kind):
    devices.check_saved(two, kind, DEVICE, str(tmp_path / "run"))
