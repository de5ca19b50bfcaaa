import pytest

from tests.check.execute.run import SETUP, facts, value

IMPORTS = """
from transformers import get_constant_schedule, get_linear_schedule_with_warmup
from torch.optim.lr_scheduler import LambdaLR, StepLR
"""
MADE = SETUP + IMPORTS + "v = {}\n"
CHOICE = (
    SETUP
    + IMPORTS
    + """
def make(name):
    if name == "rest":
        return {}
    return StepLR(optimizer, 3)
v = make(args.name)
"""
)


@pytest.mark.parametrize(
    ("made", "skippable"),
    [
        ("LambdaLR(optimizer, lr_lambda=lambda epoch: 1)", True),
        ("LambdaLR(optimizer, lambda epoch: 0.9**epoch)", False),
        ("get_constant_schedule(optimizer)", True),
        ("get_linear_schedule_with_warmup(optimizer, warmup, total)", True),
        ("get_linear_schedule_with_warmup(optimizer, 0, total)", False),
        ("StepLR(optimizer, 3)", False),
    ],
)
def test_what_a_schedule_loses_with_its_first_value(made, skippable):
    assert value(MADE.format(made)).skippable is skippable
    assert value(CHOICE.format(made)).skippable is skippable


def test_the_trace_says_so():
    loop = "for x in loader:\n    v.step()\n    model(x).sum().backward()\n    optimizer.step()\n"
    assert facts(MADE.format("get_constant_schedule(optimizer)") + loop, "v")["skippable"]
    assert "skippable" not in facts(MADE.format("StepLR(optimizer, 3)") + loop, "v")


TABLE = """
import transformers
make = {{"warm": transformers.get_linear_schedule_with_warmup}}["warm"]
v = make(optimizer, {})
"""


@pytest.mark.parametrize(
    ("given", "skippable"),
    [
        ("warmup, total", True),
        ("**options", True),
        ("**{'num_warmup_steps': 100, 'num_training_steps': total}", True),
        ("**{'num_warmup_steps': 0, 'num_training_steps': total}", False),
        ("0, total", False),
    ],
)
def test_a_warm_up_under_another_name(given, skippable):
    assert value(SETUP + TABLE.format(given)).skippable is skippable
