"""Several ranks on one GPU: two processes over gloo and over NCCL, whose tensors are on the device.

The same cases run on the CPU in tests/distributed/test_devices.py.
"""

from __future__ import annotations

import pytest

from tests.distributed import crew, devices
from tests.distributed.devices import KINDS
from tests.gpu.on_device import NCCLCrew

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"


@pytest.fixture(scope="module", params=[crew.Crew, NCCLCrew], ids=["gloo", "nccl"])
def two(request):
    patch = pytest.MonkeyPatch()
    # Of a case; two processes have to begin with CUDA in the first one.
    patch.setattr(crew, "PATIENCE", 40.0)
    made = request.param(2)
    yield made
    made.end()
    patch.undo()


@pytest.fixture(scope="module")
def problem(two):
    (first, second) = two.run(devices.collectives_problem, DEVICE, timeout=20.0)
    assert bool(first) == bool(second)
    return first


@pytest.fixture(params=KINDS)
def kind(request, problem):
    if request.param == "fsdp" and problem:
        pytest.skip(f"gloo has no collectives for FSDP2 on CUDA here: {problem}")
    return request.param


def test_updates(two, kind):
    devices.check_updates(two, kind, DEVICE)


def test_a_step_that_is_skipped(two, kind):
    devices.check_overflow(two, kind, DEVICE)


def test_out_of_memory_on_one_rank(two, kind):
    devices.check_out_of_memory(two, kind, DEVICE)


def test_a_window_that_one_rank_replays(two, kind):
    devices.check_replayed(two, kind, DEVICE)


def test_checkpoints(two, tmp_path, kind):
    devices.check_saved(two, kind, DEVICE, str(tmp_path / "run"))
