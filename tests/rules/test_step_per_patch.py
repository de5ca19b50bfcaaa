from __future__ import annotations

from dataclasses import replace

import pytest

from instep.rules import Severity
from tests.rules.loops import (
    JOB,
    LINES,
    MANAGED,
    backward,
    drawn,
    found,
    gated,
    only,
    opaque,
    pieces,
    plain,
    step,
    zero,
)  # fmt: skip

CODE = "INS103"
EACH = [zero(), backward(), step()]


def test_a_step_per_patch():
    finding = only(CODE, pieces(each=EACH))
    assert finding.severity is Severity.WARNING
    assert finding.place.line == LINES["step"]
    assert "`sgd` steps after every patch of a batch" in finding.message
    assert {"step", "backward", "zero", "drawn"} == {event.kind for event in finding.evidence}


def test_one_clear_for_all_patches():
    finding = only(CODE, pieces(before=[zero()], each=[backward(), step()]))
    assert finding.severity is Severity.WARNING


def test_other_pieces_are_legal():
    finding = only(CODE, pieces(type_="batch.chunk(4)", is_patches=False, each=EACH))
    assert finding.severity is Severity.INFO
    assert "after every piece of a batch" in finding.message


SILENT = {
    "a step after the patches": pieces(before=[zero()], each=[backward()], after=[step()]),
    "a clear per patch, the step outside": pieces(each=[zero(), backward()], after=[step()]),
    "one patch per batch": pieces(count=1, each=EACH),
    "batches": plain(EACH),
    "gated": gated(),
    "updates repeated on one batch": pieces(type_="range(5)", is_patches=False, each=EACH),
    "chunks of a corpus are batches": [
        event for i in range(3) for event in (drawn(i, "corpus.split(35)", of="loop"), *EACH)
    ],
    "managed": [MANAGED, *pieces(each=EACH)[1:]],
    "opaque": [*pieces(each=EACH), opaque("sgd")],
    "mini-batches of what is gone through again": [
        replace(event, facts={**event.facts, "again": True}) if event.kind == "created" else event
        for event in pieces(each=EACH)
    ],
    "pieces that nothing steps in": [JOB, drawn(0, "piece", of="loader"), drawn(1), *EACH, *EACH],
}


@pytest.mark.parametrize("events", SILENT.values(), ids=SILENT)
def test_silent(events):
    assert found(CODE, events) == []
