from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Drawn, EpochEnd
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

CODE = "INS204"


@pytest.mark.parametrize("clears_at_start", [True, False])
def test_a_gate_that_is_true_at_zero(clears_at_start):
    events = gated(4, batches=14, steps_at=lambda i, n: i % 4 == 0, clears_at_start=clears_at_start)
    finding = only(CODE, events)
    assert finding.severity is Severity.ERROR
    assert finding.place.line == LINES["step"]
    assert finding.message == (
        "the first window holds 1 micro-batch and those after it hold 4, so "
        "the first update is made of 1 micro-batch divided by 4."
    )
    assert {"backward", "step", "zero"} <= {event.kind for event in finding.evidence}


def test_a_gate_that_skips_zero():
    finding = only(CODE, gated(4, batches=14, steps_at=lambda i, n: i > 0 and i % 4 == 0))
    assert finding.message == (
        "the first window holds 5 micro-batches and those after it hold 4, so "
        "the first update is made of 5 micro-batches divided by 4."
    )


def test_a_short_epoch_shows_one_window():
    events = gated(3, batches=5, steps_at=lambda i, n: i > 0 and i % 3 == 0, clears_at_start=False)
    assert only(CODE, events).message == (
        "the first window holds 4 micro-batches instead of 3, so "
        "its update is made of 4 micro-batches divided by 3."
    )


def test_a_strict_comparison():
    finding = only(CODE, gated(3, batches=14, steps_at=lambda i, n: (i + 1) % 4 == 0))
    assert finding.message == (
        "every window holds 4 micro-batches instead of 3, so "
        "its update is made of 4 micro-batches divided by 3."
    )


def test_a_count_from_one():
    finding = only(CODE, gated(3, batches=5, steps_at=lambda i, n: (i + 2) % 3 == 0))
    assert finding.message == (
        "the first window holds 2 micro-batches and those after it hold 3, so "
        "the first update is made of 2 micro-batches divided by 3."
    )


def test_a_count_that_is_reset_to_one():
    finding = only(CODE, gated(3, batches=9, epochs=1, steps_at=lambda i, n: i in {2, 4, 6}))
    assert finding.message == (
        "every window after the first holds 2 micro-batches instead of 3, so "
        "its update is made of 2 micro-batches divided by 3."
    )


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("default", "with a gate of 3, which is the default, "),
        ("nowhere", "if the gate is, say, 3, "),
    ],
)
def test_a_number_that_is_not_written_is_a_warning(written, start):
    finding = only(CODE, gated(3, batches=5, steps_at=lambda i, n: i % 3 == 0, written=written))
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith(f"{start}the first window holds 1 micro-batch ")


def test_windows_of_two():
    assert only(CODE, gated(2, batches=5, steps_at=lambda i, n: i % 2 == 0)).message == (
        "the first window holds 1 micro-batch and those after it hold 2, so "
        "the first update is made of 1 micro-batch divided by 2."
    )


VALIDATION = [Drawn("val", 0), Drawn("val", 1), EpochEnd("val", 0, 2)]
RIGHT = {
    "the last window is left over": gated(),
    "a flush in the loop": gated(steps_at=lambda i, n: (i + 1) % 3 == 0 or i + 1 == n),
    "a flush in the loop and then a validation": gated(
        steps_at=lambda i, n: (i + 1) % 3 == 0 or i + 1 == n, after_epoch=VALIDATION
    ),
    "a flush after the loop": gated(after_epoch=[step(line=11, every=3), zero()]),
    "a count that runs on": gated(runs_on=True, clears_at_start=False),
    "a gate that is no accumulation": plain([zero(), backward(), step(every=3)]),
    "a step at the top of the loop": [
        JOB,
        *[event for i in range(8) for event in (
            drawn(i), *([step(every=3), zero()] if i and i % 3 == 0 else []), backward(),
        )],
        end(8),
    ],
    "two backwards of one loss per batch": gated(after_backward=[backward()]),
    "patches in a gated window of batches": [
        JOB,
        *[event for i in range(8) for event in (
            drawn(i),
            *[drawn(0, "piece", of="loader"), backward()] * 2,
            *([step(every=3), zero()] if (i + 1) % 3 == 0 else []),
        )],
        end(8),
    ],
    "no gate": pieces(before=[zero()], each=[backward()], after=[step()]),
    "the critic's losses in the actor": plain([
        *[zero("c"), backward("c", "a"), step("c")] * 2,
        backward("a"), step("a", every=2), zero("a"),
    ]),
}  # fmt: skip
WRONG = gated(steps_at=lambda i, n: i % 3 == 0)
UNKNOWN = {
    "no gate known": [step() if event.kind == "step" else event for event in WRONG],
    "managed": [MANAGED, *WRONG[1:]],
    "opaque": [*WRONG, opaque()],
    "a backward of unknown reach": [
        backward().__class__(None) if event.kind == "backward" else event for event in WRONG
    ],
}


@pytest.mark.parametrize("events", [*RIGHT.values(), *UNKNOWN.values()], ids=[*RIGHT, *UNKNOWN])
def test_silent(events):
    assert found(CODE, events) == []


def test_what_is_not_divided_by_the_gate_has_no_number():
    events = gated(4, batches=14, steps_at=lambda i, n: i % 4 == 0, factor=1.0)
    assert only(CODE, events).message == (
        "the first window holds 1 micro-batch and those after it hold 4."
    )
