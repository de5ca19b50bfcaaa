"""One crew of each size for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.distributed.crew import Crew


@pytest.fixture(scope="session")
def two():
    crew = Crew(2)
    yield crew
    crew.end()


@pytest.fixture(scope="session")
def three():
    crew = Crew(3)
    yield crew
    crew.end()


@pytest.fixture(scope="module")
def four():
    crew = Crew(4)
    yield crew
    crew.end()


@pytest.fixture(params=[2, 3])
def crew(request):
    return request.getfixturevalue({2: "two", 3: "three"}[request.param])
