from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Assumed, Created, Forward, GradEdited
from tests.rules.loops import (
    JOB,
    LINES,
    MANAGED,
    backward,
    drawn,
    end,
    found,
    gated,
    only,
    opaque,
    plain,
    step,
    zero,
)  # fmt: skip

CODE = "INS104"
TWICE = [zero(), backward(), step(scaler="scaler"), step(line=20)]


def test_a_second_step():
    finding = only(CODE, plain(TWICE))
    assert finding.severity is Severity.WARNING
    assert finding.place.line == 20
    assert finding.message == "`sgd` steps a second time on gradients that a step has used already."
    assert [(r.label, r.place.line) for r in finding.related] == [
        ("stepped before here", LINES["step"])
    ]


def test_a_step_after_the_clear():
    finding = only(CODE, plain([zero(), backward(), step(), zero(line=19), step(line=20)]))
    assert finding.message == (
        "`sgd` steps although no backward has followed since its gradients were cleared."
    )


def test_the_wrong_optimizer_steps():
    body = [
        zero("g"), zero("d"), backward("g"), step("g"), backward("d", line=20), step("g", line=21),
    ]  # fmt: skip
    assert only(CODE, plain(body)).place.line == 21


MADE = [
    Created("gen", "optimizer", {"models": ("generator",), "written": True}),
    Created("critic", "optimizer", {"models": ("critic",), "written": True}),
]
FOR_NOTHING = [zero("gen", "critic"), backward("gen"), step("gen"), step("critic", line=20)]


def test_an_optimizer_that_no_loss_reaches():
    finding = only(CODE, [*MADE, *plain(FOR_NOTHING)])
    assert finding.place.line == 20
    assert finding.message == "`critic` steps, but no backward ever fills its gradients."


def test_gradients_that_nobody_stored():
    finding = only(CODE, [*MADE[1:], *plain([Forward("critic"), zero("critic"), step("critic")])])
    assert "`critic` steps, but no backward" in finding.message


SILENT = {
    "a loss may reach it on a way that was not seen": [
        *MADE, *plain([Forward("critic"), backward().__class__(None), *FOR_NOTHING]),
    ],
    "the other side of a condition may hold the backward": [
        *MADE, Assumed("loss > 0", holds=False), *plain(FOR_NOTHING),
    ],
    "an optimizer of unknown models": plain(FOR_NOTHING),
    "a loop that shows a schedule, with its optimizer": [*MADE[1:], *plain([step("critic")])],
    "what is left after the loop, perhaps nothing": [
        JOB, *[drawn(), backward(), step(), zero(), end(1), step(line=20), zero()] * 2,
    ],
    "steps that are timed": [JOB, backward(), *[step(line=20)] * 5, *[step(line=21)] * 5],
    "plain": plain([zero(), backward(), step()]),
    "gated": gated(),
    "a step before training": [JOB, step(line=20), *plain([zero(), backward(), step()])],
    "a loop that shows a schedule": plain([step()]),
    "cleared before the step is another rule": plain([backward(), zero(), step()]),
    "gradients made by hand": plain([backward(), step(), zero(), GradEdited(("sgd",)), step()]),
    "closure": plain([backward(), step(), step(closure=True)]),
    "a new optimizer over old gradients": [
        Created("sgd", "optimizer"), backward(), step(), backward(), Created("sgd", "optimizer"),
        step(),
    ],
    "managed": [MANAGED, *plain(TWICE)[1:]],
    "opaque": [*plain(TWICE), opaque("sgd")],
    "a backward of unknown reach": plain([backward(), step(), backward().__class__(None), step()]),
    "unknown optimizer": plain([backward(), step(), step(None)]),
}  # fmt: skip


@pytest.mark.parametrize("events", SILENT.values(), ids=SILENT)
def test_silent(events):
    assert found(CODE, events) == []


@pytest.mark.parametrize(("written", "severity"), [(True, "warning"), (None, "info")])
def test_a_model_that_is_only_a_name_may_go_backward_by_itself(written, severity):
    facts = {} if written is None else {"written": written}
    made = [
        Created("net", "model", facts),
        Created("adam", "optimizer", {"models": ("net",), "written": True}),
    ]
    body = plain([Forward("net"), zero("adam"), step("adam")])
    assert only(CODE, [JOB, *made, *body]).severity.word == severity
