from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Created, GradRead
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
    pieces,
    plain,
    step,
    zero,
)  # fmt: skip

CODE = "INS102"


def test_a_clear_between_backward_and_step():
    finding = only(CODE, plain([backward(), zero(), step()]))
    assert finding.severity is Severity.ERROR
    assert finding.place.line == LINES["zero"]
    assert finding.message == (
        "the gradients are cleared before `sgd` steps, so the update uses none of them."
    )
    assert [r.label for r in finding.related] == ["backward here", "stepped here"]
    assert {type(event).__name__ for event in finding.evidence} == {"Zero", "Backward", "Step"}


def test_a_clear_per_patch_with_the_step_outside():
    events = pieces(count=4, each=[zero(), backward()], after=[step()])
    finding = only(CODE, events)
    assert finding.place.line == LINES["zero"]
    assert finding.message == (
        "only the last of the micro-batches of a window reaches the update of `sgd`."
    )
    finding = only(CODE, [*events, Created("piece", "loader", {"length": 4})])
    assert finding.message == "only the last of 4 micro-batches reaches the update of `sgd`."


def test_a_clear_outside_the_gate():
    events = gated(4, batches=6, clears_at_start=False, clears_after_step=False)
    for at in range(len(events) - 1, 0, -1):
        if events[at].kind == "drawn":
            events.insert(at + 1, zero())
    finding = only(CODE, events)
    assert finding.message == "only the last of 4 micro-batches reaches the update of `sgd`."


@pytest.mark.parametrize("batches", [8, 9])
@pytest.mark.parametrize(
    ("written", "used"),
    [("literal", "3 of 4 micro-batches"), ("nowhere", "some of the micro-batches of a window")],
)
def test_a_clear_one_micro_batch_after_the_step(batches, written, used):
    more = {"clears_at_start": False, "clears_after_step": False, "written": written}
    events = gated(4, batches=batches, **more)
    for at in range(len(events) - 1, 0, -1):
        if events[at].kind == "backward" and events[at - 1].index % 4 == 0:
            events.insert(at + 1, zero())
    assert found("INS204", events) == []
    finding, *_ = found(CODE, events)
    assert finding.place.line == LINES["zero"]
    assert finding.message == (
        f"only {used} reach the update of `sgd`: the others are cleared before."
    )


def test_a_clear_after_a_backward_that_is_no_part_of_the_window():
    body = [drawn(), backward(factor=1.0), zero(), *[drawn(1), backward(factor=1 / 3)] * 3, step()]
    assert found(CODE, [JOB, *body * 4]) == []


def test_a_clear_after_every_backward():
    events = gated(3, clears_at_start=False, clears_after_step=False, after_backward=[zero()])
    finding = only(CODE, events)
    assert "none of 3 micro-batches reaches the update" in finding.message
    assert finding.place.line == LINES["zero"]


def test_one_loss_of_two_is_cleared():
    body = [backward(loss="box", line=20), zero(), backward(loss="cls", line=30), step()]
    finding = only(CODE, plain(body))
    assert finding.severity is Severity.WARNING
    assert (
        finding.message
        == "the gradients of `box` are cleared before the update of `sgd` uses them."
    )


RIGHT = {
    "a probe before training": [JOB, drawn(), backward(), *plain([zero(), backward(), step()])[1:]],
    "before forward": plain([zero(), backward(), step()]),
    "after step": plain([backward(), step(), zero()]),
    "gated": gated(),
    "what is left of an epoch is another rule": gated(clears_after_step=True),
    "patches": pieces(before=[zero()], each=[backward()], after=[step()]),
    "a guard that clears and goes on": plain([backward(), zero()]),
    "the generator's loss in the discriminator": plain([
        zero("d"), backward("d"), step("d"), zero("g"), backward("g", "d", line=20), step("g"),
    ]),
    "three critic updates for one of the generator": plain([
        *[zero("d"), backward("d", "g"), step("d")] * 3,
        zero("g"), backward("g", line=20), step("g"),
    ]),
    "an attack on the input": plain([
        backward(loss="attack", line=20), GradRead(()), zero(), backward(), step(),
    ]),
    "a probe before the loop": [JOB, backward(line=20), *plain([zero(), backward(), step()])],
    "a loss of another model": [
        Created("sgd", "optimizer", {"models": ("net",)}),
        *plain([backward(models=("other",)), zero(), backward(models=("net",)), step()])[1:],
    ],
    "never stepped": plain([zero(), backward()]),
    "closure": plain([backward(), zero(), step(closure=True)]),
}  # fmt: skip
UNKNOWN = {
    "managed": [MANAGED, *plain([backward(), zero(), step()])[1:]],
    "opaque": [*plain([backward(), zero(), step()]), opaque("sgd")],
    "a clear of unknown reach": plain([backward(), zero().__class__(None), step()]),
    "a clear of some parameters": plain([backward(), zero(complete=False), step()]),
    "a backward of unknown reach": plain([backward().__class__(None), zero(), step()]),
}


@pytest.mark.parametrize("events", [*RIGHT.values(), *UNKNOWN.values()], ids=[*RIGHT, *UNKNOWN])
def test_silent(events):
    assert found(CODE, events) == []


def test_a_clear_after_the_epoch_and_right_before_its_step():
    body = [drawn(), backward(), drawn(1), backward(), end(2), zero(), step()]
    finding = only(CODE, [JOB, *body, *body])
    assert "none of the micro-batches of a window reaches the update" in finding.message
