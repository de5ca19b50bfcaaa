from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Created, GradEdited
from tests.rules.loops import (
    LINES,
    MANAGED,
    at,
    backward,
    found,
    gated,
    only,
    opaque,
    pieces,
    step,
    zero,
)

CODE = "INS205"
EDIT = GradEdited(("sgd",), 0.25, place=at(LINES["edit"]))
TWICE = {"factor": 1 / 16, "parts": (1 / 4, 1 / 4), "batches": 6}


def test_divided_twice_in_the_loss():
    finding = only(CODE, gated(4, **TWICE))
    assert finding.severity is Severity.WARNING
    assert finding.place.line == LINES["backward"]
    assert "is 1/4 of their mean: the loss is divided by 4 twice" in finding.message


def test_a_number_that_is_not_written_is_an_example():
    start = "with 4 micro-batches in a window, the update of `sgd` is 1/4 "
    assert only(CODE, gated(4, **TWICE)).message.startswith(start)
    supposed = only(CODE, gated(4, **TWICE, written="nowhere")).message
    assert supposed.startswith("if a window has, say, 4 micro-batches, the update of `sgd` is 1/4 ")


def test_a_running_job_cannot_tell_a_weight_from_a_division():
    watched = Created("job", "job", {"source": "watch"})
    events = [*gated(4, **TWICE), watched]
    finding = only(CODE, events)
    assert finding.severity is Severity.INFO
    assert finding.message.startswith(
        "if neither factor of 1/4 in this loss is a weight that is meant, the loss is divided by 4"
    )


def test_divided_by_hand_and_by_the_framework():
    events = gated(2, batches=5, factor=1 / 4, parts=(1 / 2, 1 / 2))
    assert only(CODE, [MANAGED, *events[1:]]).place.line == LINES["backward"]


def test_divided_in_the_loss_and_in_the_gradients():
    finding = only(CODE, gated(4, batches=6, before_step=[EDIT], parts=(1 / 4,)))
    assert finding.place.line == LINES["edit"]
    assert ("divided in this loss", LINES["backward"]) in [
        (r.label, r.place.line) for r in finding.related
    ]


@pytest.mark.parametrize(
    ("again", "message"),
    [
        (4, "divided by 4 before a window of instep's Stepper takes the mean over its micro-"),
        ("args.accum", "divided by `args.accum` before a window of instep's Stepper takes the"),
    ],
)
def test_divided_by_hand_and_by_a_window_of_instep(again, message):
    ours = Created("job", "job", {"source": "check", "managed": "instep"})
    events = [Created("loss", "loss", {"window": True, "again": again}), backward(), opaque()]
    finding = only(CODE, [ours, *events])
    assert finding.severity is Severity.WARNING
    assert message in finding.message
    assert found(CODE, [ours, Created("loss", "loss", {"window": True}), *events[1:]]) == []


SILENT = {
    "divided once": gated(4, batches=6, parts=(1 / 4,)),
    "not divided": gated(4, batches=6, factor=1.0),
    "divided in the gradients only": gated(4, batches=6, factor=1.0, before_step=[EDIT]),
    "a weight of a half": gated(2, batches=5, factor=1 / 4, parts=(1 / 2, 1 / 2)),
    "another weight": gated(4, batches=6, factor=1 / 40, parts=(1 / 4, 1 / 10)),
    "patches in a window of batches": [
        *pieces(count=9, before=[zero()], after=[step()], each=[
            backward(factor=1 / 9, parts=(1 / 3, 1 / 3)),
        ]),
    ],
    "a sum": gated(4, **TWICE, reduction="sum"),
    "unknown edit": gated(4, batches=6, before_step=[GradEdited(("sgd",))], parts=(1 / 4,)),
    "opaque": [*gated(4, **TWICE), opaque("sgd")],
}  # fmt: skip


@pytest.mark.parametrize("events", SILENT.values(), ids=SILENT)
def test_silent(events):
    assert found(CODE, events) == []
