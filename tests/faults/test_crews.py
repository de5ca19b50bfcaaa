"""One of several ranks is killed, or hangs: the others end and say so, and nothing is lost."""

from __future__ import annotations

import pytest

from tests.faults import crews
from tests.faults.plan import Plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("crews")


@pytest.fixture(scope="module")
def whole(folder):
    return crews.whole_run(folder / "whole")


def test_one_rank_killed_again_and_again(folder, whole):
    chain = folder / "chain"
    places = [("backward:60", 1), ("save:30", 0), ("close:240", 1)]
    for place, victim in places:
        assert crews.kill_one(chain, Plan.parse(place), victim), place
    assert crews.start(chain, "", -1) == [0, 0]
    assert crews.compared(crews.results_of(chain), whole) == ([], 0)


def test_a_rank_that_hangs_is_named(folder, whole):
    place, chain = "backward:100", folder / "hang"
    said = crews.hang_one(chain, Plan.parse(place), 1)
    assert "rank 1 did not come" in said.splitlines()[0]
    assert crews.start(chain, "", -1) == [0, 0]
    assert crews.compared(crews.results_of(chain), whole) == ([], 0)
