"""Settings of all tests."""

from __future__ import annotations

import gc
import os
from pathlib import Path

# Kernels run in Triton's interpreter where there is no device; it is asked before Triton is loaded.
if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from hypothesis import HealthCheck, settings

# A change must pass or fail by itself, not by the luck of a draw; `make fuzz` draws anew each time.
common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, **common)
settings.register_profile("fuzz", max_examples=1000, print_blob=True, **common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_collection_finish() -> None:
    """Let nobody look through torch and all tests again: not Python's collector, not a watcher."""
    gc.collect()
    gc.freeze()
