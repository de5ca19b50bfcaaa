from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Created
from tests.rules.loops import ENGINE, backward, found, only, opaque, plain, step, zero

CODE = "INS105"
BODY = [
    zero("a"), backward("a"), step("a"), zero("a", line=20), backward("b", line=21), step("b"),
]  # fmt: skip


def made(a="net_a", b="net_b", *, written=True):
    return [
        Created("a", "optimizer", {"models": (a,), "written": written}),
        Created("b", "optimizer", {"models": (b,), "written": written}),
    ]


def test_one_is_cleared_in_the_place_of_the_other():
    finding = only(CODE, [*made(), *plain(BODY)])
    assert finding.severity is Severity.ERROR
    assert finding.place.line == 20
    assert finding.message == (
        "`a` is cleared where `b` should be: every update of `b` also contains the gradients of "
        "all earlier batches."
    )
    assert [(r.label, r.place.line) for r in finding.related] == [
        ("backward here", 21), ("stepped here", 8),
    ]  # fmt: skip
    assert found("INS101", [*made(), *plain(BODY)]) == []


def test_the_clears_stand_together():
    body = [zero("a"), zero("a", line=20), backward("a", "b"), step("a"), step("b")]
    assert only(CODE, [*made(), *plain(body)]).place.line == 20


def test_an_optimizer_that_never_steps_is_cleared():
    body = [zero("a"), backward("b"), step("b")]
    assert only(CODE, [*made(), *plain(body)]).place.line == 4


SILENT = {
    "each its own": [*made(), *plain([*BODY[:3], zero("b"), *BODY[4:]])],
    "cleared once: the other clear is missing": [*made(), *plain([*BODY[:3], *BODY[4:]])],
    "the same parameters": [*made("net", "net"), *plain(BODY)],
    "optimizers that may wrap each other": [*made(written=False), *plain(BODY)],
    "one call clears both": [*made(), *plain([zero("a", "b"), *BODY[1:3], *BODY[4:]])],
    "managed": [ENGINE, *made(), *plain(BODY)[1:]],
    "opaque": [*made(), *plain(BODY), opaque("b")],
}


@pytest.mark.parametrize("events", SILENT.values(), ids=SILENT)
def test_silent(events):
    assert found(CODE, events) == []
