"""Traces by hand: every event says the line that caused it, and a finding is read by its line."""

from __future__ import annotations

from dataclasses import replace

from instep.rules.view import View
from instep.trace import Backward, Clip, Created, Place, ScalerUpdate, Step, Trace, Unscale, Zero

O = ("optimizer",)  # noqa: E741
ADAM = Created("optimizer", "optimizer", {"type": "torch.optim.Adam", "written": True})
SCALER = Created("scaler", "scaler")
JOB = Created("job", "job", {"source": "check"})
MANAGED = Created("job", "job", {"source": "check", "managed": "accelerate"})


def at(line, event, function="train"):
    return replace(event, place=Place("train.py", line, 4, line, 20, function))


def judged(rule, *events):
    """Return the findings of a rule by line: severity and message."""
    findings = list(rule.judge(View(Trace([JOB, *events]))))
    assert all((f.code, f.name) == (rule.CODE, rule.NAME) for f in findings)
    assert all(f.evidence[0].place == f.place for f in findings)
    assert all(f.message.endswith(".") and not f.message[0].isupper() for f in findings)
    assert len({f.place for f in findings}) == len(findings)
    return {f.place.line: (f.severity.word, f.message) for f in findings}


def one(rule, *events):
    """Return the only finding of a rule."""
    (finding,) = rule.judge(View(Trace([JOB, *events])))
    return finding


def backward(line=10, optimizers=O, **more):
    return at(line, Backward(optimizers, "loss", 1.0, **more))


def scaled(line=10, optimizers=O, **more):
    return backward(line, optimizers, scaled=True, **more)


def clip(line=20, optimizers=O, limit=1.0):
    return at(line, Clip(optimizers, limit=limit))


def step(line=30, optimizer="optimizer", **more):
    return at(line, Step(optimizer, **more))


def scaler_step(line=30, optimizer="optimizer"):
    return step(line, optimizer, scaler="scaler")


def zero(line=40, optimizers=O, **more):
    return at(line, Zero(optimizers, **more))


def unscale(line=15, optimizer="optimizer"):
    return at(line, Unscale(optimizer, "scaler"))


def update(line=35):
    return at(line, ScalerUpdate("scaler"))
