"""Jobs here use one thread; other tests keep theirs."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
