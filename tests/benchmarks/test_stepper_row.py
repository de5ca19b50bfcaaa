"""The row of the exactness table that is ours, without the packages that the other rows need."""

import pytest

from benchmarks.exactness.peers import PEERS
from benchmarks.exactness.runner import EXACT, run
from benchmarks.exactness.scenarios import ragged, situations

OURS = [peer for peer in PEERS if peer.package == "instep"]


@pytest.mark.parametrize("scenario", [*ragged(), *situations()], ids=lambda each: each.title)
def test_stepper_is_exact(scenario):
    (outcome,) = run(OURS, [scenario], require_peers=True)
    assert outcome.error is not None, f"{outcome.note}: {outcome.detail}"
    assert outcome.error < EXACT
