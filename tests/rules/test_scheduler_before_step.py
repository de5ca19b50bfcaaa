import pytest

from instep.rules import scheduler_before_step as rule
from instep.trace import Created, EpochEnd, Opaque, Schedule
from tests.rules.lines import MANAGED, O, at, backward, judged, one, step, zero

STEP_LR = Created("scheduler", "scheduler", {"type": "torch.optim.lr_scheduler.StepLR"})
BATCH = [zero(), backward(), step()]
END = EpochEnd("loader")


def schedule(line=50, optimizer="optimizer", **more):
    return at(line, Schedule(optimizer, "scheduler", **more))


def test_at_the_top_of_the_epoch():
    severity, message = judged(rule, STEP_LR, *[schedule(), *BATCH * 3, END] * 2)[50]
    assert severity == "warning"
    assert message == (
        "`scheduler` is stepped before the first update of `optimizer`, "
        "so the first value of the schedule is skipped."
    )


def test_nothing_is_lost_with_the_first_value():
    type_ = "torch.optim.lr_scheduler.LambdaLR"
    made = Created("scheduler", "scheduler", {"type": type_, "skippable": True})
    assert judged(rule, made, *[schedule(), *BATCH * 3, END] * 2) == {}


def test_before_the_update_of_the_batch():
    finding = one(rule, STEP_LR, *[zero(), backward(), schedule(unit="update"), step()] * 2)
    assert finding.place.line == 50
    assert [e.kind for e in finding.evidence] == ["schedule", "step"]
    assert [(r.place.line, r.label) for r in finding.related] == [(30, "first update here")]


def test_a_scheduler_of_two():
    other = at(51, Schedule("optimizer", "other", unit="update"))
    events = [*[schedule(unit="update"), *BATCH, other] * 2]
    assert judged(rule, *events).keys() == {50}


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*BATCH, schedule()] * 2, id="per batch"),
        pytest.param([*BATCH, END, schedule()] * 2, id="per epoch"),
        pytest.param([schedule(unit="metric"), *BATCH] * 2, id="plateau"),
        pytest.param([schedule(explicit=True), *BATCH] * 2, id="told the epoch"),
        pytest.param([schedule(optimizer=None), *BATCH] * 2, id="unknown optimizer"),
        pytest.param([schedule()], id="no update at all"),
        pytest.param([schedule(), *BATCH], id="may be in order with the caller's"),
        pytest.param([schedule(), schedule(), *[*BATCH, schedule(51)] * 2], id="resumed"),
        pytest.param(
            [STEP_LR, *[backward(), schedule(), backward(), schedule(), step(), zero()] * 2],
            id="per micro-batch",
        ),
        pytest.param([Opaque(O, "f"), *[schedule(), *BATCH] * 2], id="opaque"),
        pytest.param([Opaque(None, "f"), *[schedule(), *BATCH] * 2], id="all opaque"),
        pytest.param([step(optimizer=None), *[schedule(), *BATCH] * 2], id="unknown step"),
        pytest.param([END, *[schedule(), *BATCH, END] * 2], id="its turn begins later"),
        pytest.param([MANAGED, *[schedule(), *BATCH] * 2], id="managed"),
        pytest.param(
            [Created("scheduler", "scheduler", {"type": "Noam"}), *[schedule(), *BATCH] * 2],
            id="own class",
        ),
    ],
)
def test_silent(events):
    assert judged(rule, STEP_LR, *events) == {}


def test_a_scheduler_about_which_nothing_is_known():
    assert judged(rule, *[schedule(), *BATCH] * 2) == {}
