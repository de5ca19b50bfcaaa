from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Created
from tests.rules.loops import (
    LINES,
    MANAGED,
    backward,
    found,
    gated,
    only,
    opaque,
    plain,
    step,
    zero,
)

CODE = "INS203"
RAGGED = Created("loss", "loss", {"ragged": True, "reduction": "mean"})


def test_ragged_means_with_equal_weights():
    finding = only(CODE, [RAGGED, *gated()])
    assert finding.severity is Severity.WARNING
    assert finding.place.line == LINES["backward"]
    assert "each micro-batch has the same weight in the update of `sgd`" in finding.message


def test_items_that_may_be_ignored_are_a_hint():
    declared = Created("loss", "loss", {"ragged": "declared", "reduction": "mean"})
    assert only(CODE, [declared, *gated()]).severity is Severity.INFO


def test_a_framework_that_divides():
    assert found(CODE, [MANAGED, RAGGED, *gated()[1:]])


def test_an_even_loss_beside_it():
    extra = [backward(loss="aux", line=20, factor=1 / 3)]
    assert only(CODE, [RAGGED, *gated(after_backward=extra)]).place.line == LINES["backward"]


SILENT = {
    "even": gated(),
    "one micro-batch": [RAGGED, *plain([zero(), backward(), step()])],
    "a sum": [Created("loss", "loss", {"ragged": True, "reduction": "sum"}), *gated()],
    "not divided is another rule": [RAGGED, *gated(factor=1.0)],
    "unknown factor": [
        RAGGED,
        *(e if e.kind != "backward" else backward(factor=None) for e in gated()),
    ],
    "opaque": [RAGGED, *gated(), opaque("sgd")],
    "unknown": [Created("loss", "loss", {"ragged": None}), *gated()],
}


@pytest.mark.parametrize("events", SILENT.values(), ids=SILENT)
def test_silent(events):
    assert found(CODE, events) == []
