from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import GradEdited
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

CODE = "INS106"


def test_two_clears_in_one_iteration():
    finding = only(CODE, plain([zero(), zero(line=20, target="model"), backward(), step()]))
    assert finding.severity is Severity.INFO
    assert finding.place.line == 20
    assert finding.message == (
        "the gradients of `sgd` are cleared again, with no backward since they were cleared."
    )
    assert [(r.label, r.place.line) for r in finding.related] == [
        ("cleared before here", LINES["zero"])
    ]


def test_a_clear_at_both_ends_of_the_iteration():
    finding = only(CODE, plain([zero(), backward(), step(), zero(line=20)]))
    assert finding.place.line == LINES["zero"]


SILENT = {
    "plain": plain([zero(), backward(), step()]),
    "before the loop and after a gated step": gated(),
    "before the loop and in it": [JOB, zero(line=20), *plain([zero(), backward(), step()])],
    "at every epoch and in the loop": [
        JOB,
        *[zero(line=20), drawn(), zero(), backward(), step(), end(1)] * 2,
    ],
    "the generator fills the discriminator": plain([
        zero("d"), backward("d"), step("d"), zero("d", line=20), zero("g"), backward("g", "d"),
        step("g"),
    ]),
    "a guard that clears and goes on": plain([zero(), backward(), zero(line=20)]),
    "one of two was cleared before": plain([
        zero("a"), zero("a", "b", line=20), backward("a", "b"), step("a"), step("b"),
    ]),
    "gradients made by hand": plain([
        zero(), GradEdited(("sgd",)), zero(line=20), backward(), step(),
    ]),
    "managed": [MANAGED, *plain([zero(), zero(line=20), backward(), step()])[1:]],
    "something opaque between": plain([zero(), opaque(), zero(line=20), backward(), step()]),
    "a clear of unknown reach": plain([
        zero().__class__(None), zero(line=20), backward(), step(),
    ]),
    "a backward of unknown reach": plain([
        zero(), backward().__class__(None), zero(line=20), backward(), step(),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("events", SILENT.values(), ids=SILENT)
def test_silent(events):
    assert found(CODE, events) == []
