"""The crews of tests/distributed, held to the rules of NCCL."""

from __future__ import annotations

import pytest

from tests.distributed.nccl.crew import HeldCrew


@pytest.fixture(scope="session")
def two():
    crew = HeldCrew(2)
    yield crew
    crew.end()


@pytest.fixture(scope="session")
def three():
    crew = HeldCrew(3)
    yield crew
    crew.end()


@pytest.fixture(scope="module")
def four():
    crew = HeldCrew(4)
    yield crew
    crew.end()
