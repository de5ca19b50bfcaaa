import pytest

from instep.rules import sync_every_micro_batch as rule
from instep.trace import Created, Drawn, Forward, Opaque
from tests.rules.lines import MANAGED, O, at, backward, judged, one, step, zero

DDP = Created("model", "model", {"distributed": "ddp"})
LITERAL = Created("micro", "loader", {"length": 3})


def micro(sync, model="model", line=8):
    return [
        Drawn("micro", of="loop"),
        at(line, Forward(model, sync=sync)),
        backward(models=(model,)),
    ]


def window(*syncs):
    return [*(e for sync in syncs for e in micro(sync)), step(), zero()]


def test_at_every_micro_batch():
    severity, message = judged(rule, DDP, LITERAL, *window(True, True, True) * 2)[8]
    assert severity == "info"
    assert message == (
        "the gradients of `model` are reduced over all ranks 3 times per update, "
        "where once per update is enough."
    )


def test_a_made_up_number_is_not_said():
    assert "at every micro-batch" in judged(rule, DDP, *window(True, True, True))[8][1]


def test_two_models():
    """Each is reduced once more than needed; the last micro-batch of neither counts."""
    both = [Created(name, "model", {"distributed": "ddp"}) for name in ("a", "b")]
    once = [
        Drawn("micro"),
        at(7, Forward("a", sync=True)),
        at(8, Forward("b", sync=True)),
        backward(models=("a", "b")),
    ]
    assert judged(rule, *both, *once * 2, step()).keys() == {7}
    assert judged(rule, *both, *once, step()) == {}


def test_the_evidence():
    finding = one(rule, DDP, *window(True, True))
    assert [e.kind for e in finding.evidence] == ["forward", "backward", "step"]
    assert {r.place.line for r in finding.related} == {10, 30}


REAL_AND_FAKE = [*micro(True, line=8), *micro(True, line=9), step()]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([DDP, *window(False, False, True) * 2], id="right"),
        pytest.param([DDP, *window(None, None, None)], id="unknown"),
        pytest.param([DDP, *window(True) * 3], id="no accumulation"),
        pytest.param([Created("model", "model"), *window(True, True)], id="one rank"),
        pytest.param(
            [Created("model", "model", {"distributed": "fsdp"}), *window(True, True)], id="fsdp"
        ),
        pytest.param([DDP, MANAGED, *window(True, True)], id="managed"),
        pytest.param([DDP, Opaque(O, "f"), *window(True, True)], id="opaque"),
        pytest.param([DDP, *micro(True), *micro(True)], id="never updated"),
        pytest.param([DDP, *micro(True, "b"), *micro(True, "b"), step()], id="another model"),
        pytest.param([DDP, *REAL_AND_FAKE], id="real and fake"),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}
