from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Created
from tests.rules.loops import LINES, backward, found, gated, only, opaque, plain, step, zero

CODE = "INS207"
COUPLED = Created("loss", "loss", {"coupled": True})


def test_a_contrastive_loss_in_a_window_of_several():
    finding = only(CODE, [COUPLED, *gated()])
    assert finding.severity is Severity.INFO
    assert finding.place.line == LINES["backward"]
    assert "compared only with those of its own micro-batch" in finding.message


SILENT = {
    "another loss": gated(),
    "one micro-batch": [COUPLED, *plain([zero(), backward(), step()])],
    "unknown": [Created("loss", "loss", {"coupled": None}), *gated()],
    "opaque": [COUPLED, *gated(), opaque("sgd")],
}


@pytest.mark.parametrize("events", SILENT.values(), ids=SILENT)
def test_silent(events):
    assert found(CODE, events) == []
