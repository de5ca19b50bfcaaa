"""Findings in tests."""

import pytest

from instep.check.fixing import fix_unit
from instep.check.judge import judge
from tests.check.repairs import MADE, unit_of


@pytest.mark.parametrize(
    ("name", "severity"),
    [("test_accumulation", "info"), ("accumulate", "error"), ("latest_losses", "error")],
)
def test_what_is_found_in_a_test_is_a_note(name, severity):
    loop = "    for x, y in loader:\n        F.mse_loss(model(x), y).backward()\n"
    text = MADE + f"def {name}(loader):\n{loop}        optimizer.step()\n{name}(data)\n"
    assert {f.severity.word for f in judge(unit_of(text)).findings} == {severity}
    helped = loop.replace("F.mse_loss(model(x), y).backward()", "go(x, y)")
    text = MADE + "def go(x, y):\n    F.mse_loss(model(x), y).backward()\n"
    text += f"def {name}(loader):\n{helped}        optimizer.step()\n{name}(data)\n"
    assert {f.severity.word for f in judge(unit_of(text)).findings} == {severity}


def mended(text):
    return fix_unit(unit_of(text), unsafe=True, judge=judge, accept=lambda _, f: f).text


def test_nothing_is_mended_in_a_test():
    text = MADE + "def {}(loader):\n    for x, y in loader:\n"
    text += "        F.mse_loss(model(x), y).backward()\n        optimizer.step()\n{}(data)\n"
    right = text.format("test_it", "test_it")
    assert mended(right) == right
    wrong = text.format("train", "train")
    assert "zero_grad" in mended(wrong)
