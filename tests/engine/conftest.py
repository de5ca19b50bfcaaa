from __future__ import annotations

import pytest
from torch.utils.data import _utils

from tests.engine.kit import pretend_device

# An iterator that the collector finds together with the frames of an error cannot tell its workers
# to end: their queues are closed by then. torch waits this long for each of them, and kills it.
_utils.MP_STATUS_CHECK_INTERVAL = 1.0


@pytest.fixture(params=["host", "device"])
def counts_on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with counts read at once, and again as if they were on a device."""
    if request.param == "device":
        pretend_device(monkeypatch)
    return request.param
