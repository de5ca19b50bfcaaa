import pytest

from instep.rules import scheduler_per_micro_batch as rule
from instep.trace import Created, Drawn, EpochEnd, Opaque, Schedule
from tests.rules.lines import MANAGED, O, at, backward, judged, one, step, zero

PIECES = Created("pieces", "loader", {"length": 4})


def schedule(line=50, optimizer="optimizer", **more):
    return at(line, Schedule(optimizer, "scheduler", **more))


def gated(length, every, *, literal=True, moves=lambda i: True, epochs=2, **more):
    """The events of a gated loop; `moves` says at which batch the scheduler is stepped."""
    for _ in range(epochs):
        for i in range(length):
            yield Drawn("loader", i)
            yield backward()
            if (i + 1) % every == 0:
                yield step(every=every, every_written="literal" if literal else "default")
                yield zero()
            if moves(i):
                yield schedule(**more)
        yield EpochEnd("loader")


def sized(horizon):
    return Created("scheduler", "scheduler", {"type": "StepLR", "horizon": horizon})


def test_without_a_length_it_is_only_a_hint():
    assert judged(rule, *gated(14, 4))[50][0] == "info"


def test_a_length_in_batches_counts_updates_where_a_batch_is_split():
    for of, found in ("loader", ["warning"]), ("loop", []):
        micro = [Drawn("pieces", of=of), backward(), schedule()]
        events = [sized("batches"), PIECES, *[*micro * 4, step(), zero()] * 2]
        assert [severity for severity, _ in judged(rule, *events).values()] == found


def test_behind_the_gate_of_the_step():
    severity, message = judged(rule, sized("updates"), *gated(14, 4))[50]
    assert severity == "warning"
    assert message == (
        "`scheduler` is stepped 4 times per update of `optimizer`, "
        "so a schedule that counts updates runs 4 times too fast."
    )


def test_a_number_that_is_not_written_is_an_example():
    message = judged(rule, *gated(8, 3, literal=False))[50][1]
    assert message.startswith("with 3 micro-batches in a window, which is the default, ")
    assert "runs 3 times too fast" in message


def test_in_the_loop_over_the_micro_batches():
    micro = [Drawn("pieces", of="loop"), backward(), schedule(unit="update")]
    finding = one(rule, PIECES, *[*micro * 4, step(), zero()] * 2)
    assert "runs 4 times too fast" in finding.message
    assert [e.kind for e in finding.evidence] == ["schedule", "step", *["backward"] * 4]
    assert {r.place.line for r in finding.related} == {10, 30}


def test_at_nearly_every_micro_batch():
    assert judged(rule, *gated(14, 4, moves=lambda i: i > 0)).keys() == {50}


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(gated(14, 4, moves=lambda i: (i + 1) % 4 == 0), id="behind the gate"),
        pytest.param(gated(14, 4, moves=lambda i: i == 13), id="per epoch"),
        pytest.param(gated(14, 1), id="no accumulation"),
        pytest.param(gated(14, 4, unit="metric"), id="plateau"),
        pytest.param(gated(14, 4, explicit=True), id="told the epoch"),
        pytest.param(gated(14, 4, optimizer=None), id="unknown optimizer"),
        pytest.param([sized("batches"), *gated(14, 4)], id="sized in batches"),
        pytest.param([MANAGED, *gated(14, 4)], id="managed"),
        pytest.param([*gated(14, 4), Opaque(O, "f")], id="opaque"),
        pytest.param([*gated(14, 4), backward(optimizers=None)], id="unknown loss"),
        pytest.param(
            [Created("scheduler", "scheduler", {"type": "Noam"}), *gated(14, 4)], id="own class"
        ),
        pytest.param(
            [*[schedule()] * 28, *gated(14, 4, moves=lambda i: i == 13)], id="a fast-forward"
        ),
        pytest.param([backward(10), backward(11), step(), schedule()] * 3, id="two losses"),
        pytest.param([backward(), backward(), schedule()] * 3, id="never updated"),
    ],
)
def test_silent(events):
    assert judged(rule, *events) == {}
