from __future__ import annotations

import pytest

from tests.engine.kit import pretend_device


@pytest.fixture(params=["host", "device"])
def counts_on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with counts read at once, and again as if they were on a device."""
    if request.param == "device":
        pretend_device(monkeypatch)
    return request.param
