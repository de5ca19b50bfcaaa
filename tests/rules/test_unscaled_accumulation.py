from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Created, GradEdited
from tests.rules.loops import (
    JOB,
    LINES,
    MANAGED,
    at,
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

CODE = "INS201"


def test_a_gated_window_that_is_not_divided():
    finding = only(CODE, gated(4, batches=6, factor=1.0, reduction="mean"))
    assert finding.severity is Severity.ERROR
    assert finding.place.line == LINES["backward"]
    assert (
        finding.message == "the gradient of `sgd` is 4 times that of the mean over 4 micro-batches."
    )
    kinds = [event.kind for event in finding.evidence]
    assert kinds.count("backward") == 4
    assert kinds.count("step") == 1


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("default", "with 3 micro-batches in a window, which is the default, "),
        ("nowhere", "if a window has, say, 3 micro-batches, "),
    ],
)
def test_a_number_that_is_not_written_is_an_example(written, start):
    finding = only(CODE, gated(3, factor=1.0, written=written, reduction="mean"))
    assert finding.severity is Severity.WARNING  # it may well be 1
    assert finding.message.startswith(f"{start}the gradient of `sgd` is ")


def test_two_things_that_are_supposed_are_one_condition():
    message = only(CODE, gated(3, factor=1.0, written="nowhere")).message
    assert message.startswith(
        "if the loss is a mean over its batch and a window has, say, 3 micro-batches, the gradient "
    )


def test_a_loss_that_may_be_a_sum_is_a_warning():
    assert only(CODE, gated(3, factor=1.0)).severity is Severity.WARNING


def test_patches_that_are_not_divided():
    finding = only(CODE, pieces(count=4, before=[zero()], each=[backward()], after=[step()]))
    assert finding.severity is Severity.WARNING
    assert "is 4 times that of the mean over 4 pieces" in finding.message


@pytest.mark.parametrize("type_", ["batch.split(8)", "range(accumulation_steps)", "batch"])
def test_loops_over_pieces(type_):
    events = pieces(
        type_=type_, is_patches=False, before=[zero()], each=[backward()], after=[step()]
    )
    assert only(CODE, events).severity is Severity.WARNING


def test_two_losses_per_micro_batch():
    events = gated(3, factor=1.0, after_backward=[backward(loss="aux", line=20)])
    assert "3 times" in only(CODE, events).message


def summed_over(type_):
    return pieces(type_=type_, is_patches=False, before=[zero()], each=[backward()], after=[step()])


EDIT = GradEdited(("sgd",), 1 / 3, place=at(LINES["edit"]))
RIGHT = {
    "divided": gated(),
    "plain": plain([zero(), backward(), step()]),
    "two losses of one batch": plain([zero(), backward(), backward(loss="aux"), step()]),
    "a sum with one denominator": gated(factor=1.0, reduction="sum"),
    "a sum by the facts of the loss": [
        Created("loss", "loss", {"reduction": "sum"}), *gated(factor=1.0)[1:],
    ],
    "gradients divided before the step": gated(factor=1.0, before_step=[EDIT]),
    "two passes of a contrastive loss": [
        Created("loss", "loss", {"coupled": True}), *gated(factor=1.0)[1:],
    ],
    "heads": summed_over("self.heads"),
    "tasks": summed_over("tasks"),
    "rewards of an episode": summed_over("zip(saved_log_probs, rewards)"),
    "time steps": summed_over("range(seq_len)"),
    "a gate that is no accumulation": plain([zero(), backward(), step(every=3)]),
}  # fmt: skip
UNKNOWN = {
    "unknown factor": [
        event if event.kind != "backward" else backward(factor=None)
        for event in gated(factor=1.0)
    ],
    "unknown edit": gated(factor=1.0, before_step=[GradEdited(("sgd",))]),
    "no gate known": [JOB, drawn(), backward(), drawn(1), backward(), step(), end(2)],
    "managed": [MANAGED, *gated(factor=1.0)[1:]],
    "opaque": [*gated(factor=1.0), opaque("sgd")],
    "another optimizer's losses in between": plain([
        *[zero("d"), backward("d", "g"), step("d")] * 3,
        backward("g"), step("g", every=3), zero("g"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("events", [*RIGHT.values(), *UNKNOWN.values()], ids=[*RIGHT, *UNKNOWN])
def test_silent(events):
    assert found(CODE, events) == []
