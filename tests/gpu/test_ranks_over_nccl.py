"""The cases of tests/distributed over NCCL itself: several ranks that share one GPU.

What they assert there they assert here, against the same references in one process on the CPU.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.distributed import (
    test_batches,
    test_corners,
    test_counting,
    test_drift,
    test_failures,
    test_gathering,
    test_hybrid,
    test_interrupts,
    test_leaving,
    test_memory,
    test_microbatch,
    test_replaced,
    test_saving,
    test_several,
    test_streams,
    test_twopass,
    test_windows,
)
from tests.distributed.again import again, cases
from tests.gpu import hanging
from tests.gpu.on_device import NCCLCrew

pytestmark = pytest.mark.gpu

MODULES = [
    test_windows,
    test_twopass,
    test_gathering,
    test_counting,
    test_several,
    test_microbatch,
    test_corners,
    test_failures,
    test_memory,
    test_hybrid,
    test_replaced,
    test_drift,
    test_saving,
    test_streams,
    test_interrupts,
    test_batches,
    test_leaving,
]
LEFT_OUT: dict[str, str] = {
    "a_rank_that_hangs_is_named": "NCCL's watchdog ends the process that goes on: see below",
    "who_goes_on_is_told_that_it_cannot_and_the_others_why": "in torch's own collectives",
    **dict.fromkeys(
        [
            "a_name_that_all_samples_have_says_nothing",
            "images_alone_in_another_order_are_found_at_the_end_of_the_epoch",
            "images_alone_that_are_changed_on_the_way_are_said_once",
        ],
        "samples on a device are not compared",
    ),
}
"""Cases that are not so here, and why."""


@pytest.fixture(scope="module")
def two():
    crew = NCCLCrew(2)
    yield crew
    crew.end()


@pytest.fixture(scope="module")
def three():
    crew = NCCLCrew(3)
    yield crew
    crew.end()


@pytest.fixture(scope="module")
def four():
    crew = NCCLCrew(4)
    yield crew
    crew.end()


@pytest.fixture(params=[2, 3])
def crew(request):
    return request.getfixturevalue({2: "two", 3: "three"}[request.param])


for _module in MODULES:
    _short = _module.__name__.rpartition("test_")[2]
    for _name, _test in cases(_module).items():
        if _name not in LEFT_OUT:
            globals()[f"test_{_short}_{_name}"] = again(_test)


def test_a_rank_that_hangs_is_named_before_the_watchdog_ends_the_others(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.hanging", str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    since = time.monotonic()
    try:
        told, _ = started[0].communicate(timeout=90)
    finally:
        for process in started:
            process.kill()
    assert "WindowError: rank 1 did not come to" in told, told
    assert told.count("closed\n") == 1
    assert started[0].returncode not in (0, None)
    assert time.monotonic() - since < 60 + hanging.TIMEOUT
    started[1].communicate()
