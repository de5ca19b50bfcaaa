import pytest

from instep.rules.schedulers import counts_calls, may_count_calls
from instep.rules.view import View
from instep.trace import Created, Schedule, Trace


@pytest.mark.parametrize(
    ("type_", "more", "surely", "maybe"),
    [
        ("torch.optim.lr_scheduler.StepLR", {}, True, True),
        ("lr_scheduler.OneCycleLR", {"unit": "update"}, True, True),
        ("transformers.get_linear_schedule_with_warmup", {"unit": "update"}, True, True),
        ("StepLR", {"explicit": True}, False, False),
        ("ReduceLROnPlateau", {"unit": "metric"}, False, False),
        ("ReduceLROnPlateau", {}, False, False),
        ("timm.scheduler.CosineLRScheduler", {}, False, False),
        ("NoamScheduler", {"unit": "update"}, False, False),
        (None, {"unit": "epoch"}, True, True),
        (None, {"unit": "metric"}, False, False),
        (None, {}, False, True),
    ],
)
def test_who_counts_calls(type_, more, surely, maybe):
    facts = {} if type_ is None else {"type": type_}
    view = View(Trace([Created("scheduler", "scheduler", facts)]))
    schedule = Schedule("optimizer", "scheduler", **more)
    assert counts_calls(view, schedule) is surely
    assert may_count_calls(view, schedule) is maybe
