from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Created, Drawn, EpochEnd
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
    plain,
    step,
    zero,
)  # fmt: skip

CODE = "INS202"
LENGTH = {"length": 14}


def flushed(i, batches):
    return (i + 1) % 4 == 0 or i + 1 == batches


def test_micro_batches_that_the_next_epoch_clears():
    finding = only(CODE, gated(4, batches=14, facts=LENGTH))
    assert finding.severity is Severity.ERROR
    assert finding.place.line == LINES["step"]
    assert finding.message == "the last 2 of 14 micro-batches never reach an update."
    assert ("cleared here", 2) in [(r.label, r.place.line) for r in finding.related]


def test_of_unknown_length_it_is_a_warning_with_an_example():
    finding = only(CODE, gated(3, batches=5))
    assert finding.severity is Severity.WARNING
    assert finding.message == (
        "if the number of batches is not a multiple of 3, the last micro-batches of an epoch never "
        "reach an update (2 of 5, for example)."
    )


@pytest.mark.parametrize(
    ("written", "number", "example"),
    [
        ("default", "3, the gate's default", "2 of 5, for example"),
        ("nowhere", "the gate's number", "with 5 batches and a gate of 3, for example, the last 2"),
        ("one", "the gate's number", "with 5 batches and a gate of 3, for example, the last 2"),
    ],
)
def test_numbers_that_the_checker_supposes_are_said_to_be_examples(written, number, example):
    starts = f"if the number of batches is not a multiple of {number}, the last micro-batches of an"
    never = only(CODE, gated(3, batches=5, written=written))
    assert never.message == f"{starts} epoch never reach an update ({example})."
    leaks = only(CODE, gated(3, batches=5, written=written, clears_at_start=False))
    assert leaks.message == (
        f"{starts} epoch leak into the first update of the next ({example}, and it holds 5 instead "
        "of 3)."
    )


def test_what_a_running_job_has_counted_is_no_example():
    events = [Created("job", "job", {"source": "watch"}), *gated(3, batches=5)[1:]]
    assert only(CODE, events).message == (
        "with 5 batches and a gate of 3, the last 2 of 5 micro-batches never reach an update."
    )
    short = [events[0], *gated(4, batches=14, steps_at=flushed)[1:]]
    assert "one: with 2 micro-batches instead of 4, its" in only(CODE, short).message
    assert "with, say, 2" in only(CODE, gated(4, batches=14, steps_at=flushed)).message


def test_a_number_that_is_not_written_is_never_an_error():
    finding = only(CODE, gated(3, batches=5, facts={"length": 5}, is_literal=False))
    assert finding.severity is Severity.WARNING


def test_micro_batches_that_leak_into_the_next_epoch():
    finding = only(CODE, gated(4, batches=14, facts=LENGTH, clears_at_start=False))
    assert finding.message == (
        "the last 2 of 14 micro-batches leak into the first update of the next epoch, "
        "which holds 6 instead of 4."
    )


def test_one_epoch():
    finding = only(CODE, gated(4, batches=14, epochs=1, facts=LENGTH))
    assert finding.message == "the last 2 of 14 micro-batches never reach an update."


def test_with_a_clear_at_every_micro_batch_they_are_left_over_all_the_same():
    events = gated(clears_at_start=False, clears_after_step=False, after_backward=[zero()])
    assert "2 of 5" in only(CODE, events).message


def test_a_validation_in_between_does_not_hide_it():
    validation = [Drawn("val", 0), Drawn("val", 1), EpochEnd("val", 0, 2)]
    finding = only(CODE, gated(3, batches=5, after_epoch=validation))
    assert "2 of 5" in finding.message


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_short_window_that_is_divided_like_a_full_one(is_inside):
    if is_inside:
        events = gated(4, batches=14, steps_at=flushed, facts=LENGTH)
    else:
        events = gated(4, batches=14, facts=LENGTH, after_epoch=[step(line=11), zero()])
    finding = only(CODE, events)
    assert finding.severity is Severity.WARNING
    assert finding.place.line == LINES["backward"]
    assert "with 2 micro-batches instead of 4, its update of `sgd` is 2/4" in finding.message
    assert finding.advice.startswith("Divide by the number of micro-batches")  # it does step


def rightly_divided(events, *, every=4, batches=14):
    """Give each backward of the last window the factor that fits it."""
    short = batches % every
    index = -1
    for event in events:
        if event.kind == "drawn":
            index = event.index
        if event.kind == "backward":
            yield backward(factor=1 / (short if index >= batches - short else every))
        else:
            yield event


RIGHT = {
    "a flush in the loop": [*rightly_divided(gated(4, batches=14, steps_at=flushed))],
    "a flush after the loop": [
        *rightly_divided(gated(4, batches=14, after_epoch=[step(line=11), zero()]))
    ],
    "a count that runs on": gated(4, batches=14, runs_on=True, clears_at_start=False, epochs=3),
    "a count that runs on, cleared too often": gated(
        3, batches=5, runs_on=True, clears_at_start=False, clears_after_step=False,
        after_backward=[zero()],
    ),
    "a length that fits": gated(4, batches=12, facts={"length": 12}),
    "plain": plain([zero(), backward(), step()]),
    "a gate that is no accumulation": plain([zero(), backward(), step(every=3)]),
    "a generator that is trained every third time": plain([
        zero("d"), backward("d", "g", loss="d_loss"), step("d"), zero("g"),
    ], batches=2) + plain([
        zero("d"), backward("d", "g", loss="d_loss"), step("d"), zero("g"),
        backward("d", "g", loss="g_loss"), step("g", every=3),
    ], batches=1)[1:],
    "what a generator's loss leaves in its discriminator": [
        JOB, Created("loader", "loader", {"length": 5}), *[
            event
            for _ in range(2)
            for index in range(5)
            for event in [
                drawn(index), backward(line=20),
                *([zero(), backward(), step(every=3, every_written="literal")] * (index % 3 == 0)),
                *([end(5)] * (index == 4)),
            ]
        ],
    ],
    "all batches in one update": [
        JOB, *[drawn(), backward(), drawn(1), backward(), end(2), step(), zero()] * 2,
    ],
    "a flush of a sum": gated(4, batches=14, steps_at=flushed, reduction="sum"),
    "never stepped": plain([backward()]),
}  # fmt: skip
UNKNOWN = {
    "no end of an epoch": [event for event in gated() if event.kind != "epoch-end"],
    "no gate known": [
        step() if event.kind == "step" else event for event in gated(batches=5)
    ],
    "a loop that may end where a window does": gated(facts={"bounded": True}),
    "managed": [MANAGED, *gated()[1:]],
    "opaque": [*gated(), opaque("sgd")],
    "a clear of unknown reach": [
        zero().__class__(None, place=at(2)) if event.kind == "zero" else event for event in gated()
    ],
}  # fmt: skip


@pytest.mark.parametrize("events", [*RIGHT.values(), *UNKNOWN.values()], ids=[*RIGHT, *UNKNOWN])
def test_silent(events):
    assert found(CODE, events) == []


def test_a_count_that_runs_on_but_is_cleared_at_every_epoch():
    events = gated(3, batches=5, runs_on=True, clears_at_start=True)
    assert "never reach an update" in only(CODE, events).message
    assert end(5).batches == 5
