from __future__ import annotations

import pytest

from instep.rules import Severity
from instep.trace import Created, Forward
from tests.rules.loops import LINES, at, backward, found, gated, only, opaque, plain, step, zero

CODE = "INS206"
NORM = Created("model", "model", {"batchnorm": True})
HELD = Created("sgd", "optimizer", {"models": ("model",)})


def forward(training=True, model="model"):
    return Forward(model, training, place=at(LINES["forward"]))


def seen(*, training=True, model="model", models=("model",)):
    return gated(4, batches=6, after_backward=[forward(training, model)], models=models)


def test_batchnorm_in_training_mode():
    finding = only(CODE, [NORM, *seen()])
    assert finding.severity is Severity.INFO
    assert finding.place.line == LINES["forward"]
    assert "BatchNorm in `model`" in finding.message
    assert "not that of the window of 4 micro-batches" in finding.message


def test_the_optimizer_knows_its_models():
    assert only(CODE, [NORM, HELD, *seen(models=None)])


def test_an_evaluation_in_the_middle_of_a_window_is_not_where_its_loss_comes_from():
    evaluated = Forward("model", training=True, place=at(99))
    made = backward(models=("model",))
    update = [zero(), forward(), made, evaluated, evaluated, forward(), made, step()]
    assert only(CODE, [NORM, *update, *update]).place.line == LINES["forward"]


SILENT = {
    "no batchnorm": [Created("model", "model", {"batchnorm": False}), *seen()],
    "unknown": seen(),
    "eval mode": [NORM, *seen(training=False)],
    "unknown mode": [NORM, *seen(training=None)],
    "one micro-batch": [NORM, *plain([zero(), forward(), backward(models=("model",)), step()])],
    "a teacher": [
        Created("teacher", "model", {"batchnorm": True}), *seen(model="teacher"),
    ],
    "nobody knows whose losses": [NORM, *seen(models=None)],
    "opaque": [NORM, *seen(), opaque("sgd")],
}  # fmt: skip


@pytest.mark.parametrize("events", SILENT.values(), ids=SILENT)
def test_silent(events):
    assert found(CODE, events) == []
