from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Created, Forward, GradEdited, Measured
from tests.rules.loops import (
    ENGINE,
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
    pieces,
    plain,
    step,
    zero,
)  # fmt: skip

CODE = "INS101"


def test_a_loop_that_never_clears():
    finding = only(CODE, plain([backward(), step()]))
    assert finding.place.line == LINES["backward"]
    assert finding.severity is Severity.ERROR
    assert finding.message == (
        "`sgd` is never cleared: every update also contains the gradients of all earlier batches."
    )
    assert [related.label for related in finding.related] == ["stepped here"]
    assert {type(event).__name__ for event in finding.evidence} == {"Backward", "Step"}


def test_written_out_one_after_the_other_it_may_be_meant():
    body = [backward(line=20), step(), backward(line=21), step(), backward(line=22), step()]
    finding = only(CODE, [JOB, *body])
    assert finding.place.line == 21
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(("again", "severity"), [(True, Severity.ERROR), (False, Severity.WARNING)])
def test_a_second_step_on_one_graph_may_not_even_run(again, severity):
    more = [Forward("model", place=None)] if again else []
    each = [*more, backward(), step()]
    finding = only(CODE, plain([zero(), Forward("model", place=None), *each, *each]))
    assert finding.severity is severity


def test_a_gated_loop_that_never_clears():
    events = gated(clears_at_start=False, clears_after_step=False)
    assert only(CODE, events).place.line == LINES["backward"]


def test_accelerate_leaves_clearing_to_the_loop():
    assert only(CODE, [MANAGED, *plain([backward(), step()])[1:]]).place.line == LINES["backward"]


def test_a_clear_once_per_epoch_is_too_seldom():
    body = [drawn(), backward(), step(), drawn(1), backward(), step(), end(2)]
    finding = only(CODE, [JOB, zero(), *body, zero(), *body])
    assert "steps more often than it is cleared" in finding.message
    assert ("cleared only here", LINES["zero"]) in [
        (r.label, r.place.line) for r in finding.related
    ]


def test_of_two_optimizers_only_the_one_that_is_not_cleared():
    body = [zero("a"), backward("a", line=20), step("a"), backward("b", line=30), step("b")]
    finding = only(CODE, plain(body))
    assert finding.place.line == 30
    assert "`b`" in finding.message
    assert "`a`" not in finding.message


def test_one_backward_for_two_optimizers_is_one_finding():
    finding = only(CODE, plain([backward("a", "b"), step("a"), step("b")]))
    assert finding.message.startswith("`a` and `b` are never cleared")


def test_the_backward_of_the_optimizer_itself_is_named():
    body = [
        zero("g"), backward("g", "d", line=20), step("g"), backward("d", line=30), step("d"),
    ]  # fmt: skip
    assert only(CODE, plain(body)).place.line == 30


def test_patches_that_are_never_cleared():
    finding = only(CODE, pieces(each=[backward()], after=[step()]))
    assert finding.place.line == LINES["backward"]


RIGHT = {
    "before forward": plain([zero(), backward(), step()]),
    "after step": plain([backward(), step(), zero()]),
    "on the module": plain([zero(target="model"), backward(), step()]),
    "gated": gated(),
    "gated, cleared only after the step": gated(clears_at_start=False),
    "a leak over the end of an epoch is another rule": gated(clears_at_start=False, batches=5),
    "one update": [JOB, backward(), step()],
    "generator and discriminator": plain([
        zero("d"), backward("d"), step("d"), zero("g"), backward("g", "d", line=20), step("g"),
    ]),
    "two losses before one step": plain([zero(), backward(), backward(loss="other"), step()]),
    "a second step without a backward is another rule": [JOB, backward(), step(), step()],
    "a step per patch with one clear per batch is another rule": pieces(
        before=[zero()], each=[backward(), step()]
    ),
    "closure": plain([backward(), step(closure=True)]),
    "no optimizer": plain([backward()]),
}  # fmt: skip
UNKNOWN = {
    "managed": [ENGINE, *plain([backward(), step()])[1:]],
    "opaque": [*plain([backward(), step()]), opaque("sgd")],
    "opaque for all": [*plain([backward(), step()]), opaque()],
    "a clear of unknown reach": plain([zero().__class__(None), backward(), step()]),
    "a clear of some parameters": plain([zero(complete=False), backward(), step()]),
    "a clear of a model that nobody is known to hold": plain([
        zero().__class__((), target="net"), backward(), step(),
    ]),
    "an optimizer by another name is cleared": plain([zero("base"), backward(), step()]),
    "two optimizers over the same model": [
        Created("a", "optimizer", {"models": ("model",)}),
        Created("b", "optimizer", {"models": ("model",)}),
        *plain([zero("a"), backward("a"), step("a"), backward("b"), step("b")])[1:],
    ],
}  # fmt: skip


@pytest.mark.parametrize("events", [*RIGHT.values(), *UNKNOWN.values()], ids=[*RIGHT, *UNKNOWN])
def test_silent(events):
    assert found(CODE, events) == []


def test_a_running_job_has_the_number():
    gauge = Measured(("sgd",), "backwards-in-gradient", 1037.0, "backwards")
    other = Measured(("adam",), "backwards-in-gradient", 5.0, "backwards")
    says = only(CODE, [*plain([backward(), step()]), other, gauge]).message
    assert says.endswith("earlier batches (gradients from 1,037 batches were in the latest one).")
    says = only(CODE, [*plain([backward(), backward(), step()]), gauge]).message
    assert "gradients from 1,037 backwards were in" in says
    assert only(CODE, [*plain([backward(), step()]), other]).message.endswith("earlier batches.")


BEGUN = [
    JOB,
    Created("sgd", "optimizer", {"written": True, "filled": True, "models": ("model",)}),
    GradEdited(("sgd",)),
]
TURN = [backward(), step()]


def test_gradients_that_were_there_before_anybody_watched():
    finding = only(CODE, [*BEGUN, *TURN * 3])
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith("`sgd` is never cleared")
    gauge = Measured(("sgd",), "backwards-in-gradient", 3.0, "backwards")
    assert "from at least 3 backwards" in only(CODE, [*BEGUN, *TURN * 3, gauge]).message


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(TURN * 2, id="the first may have been begun before"),
        pytest.param(TURN + [zero(), *TURN] * 3, id="cleared from then on"),
        pytest.param(TURN + [GradEdited(("sgd",)), *TURN] * 3, id="changed by hand"),
        pytest.param([backward()] * 3, id="no step"),
    ],
)
def test_a_window_that_was_merely_begun_before_anybody_watched(events):
    assert found(CODE, [*BEGUN, *events]) == []
