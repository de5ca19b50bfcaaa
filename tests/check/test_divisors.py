"""What `--fix` divides a loss by where the step is made in a helper, and what a proof refuses."""

from __future__ import annotations

import json

import pytest

from instep.check.fixing import fix_unit, prove
from instep.check.judge import judge
from instep.check.sources import units_from_bytes
from instep.cli import main
from instep.rules import unscaled_accumulation

HEAD = "import torch\nimport torch.nn.functional as F\n"
METHOD = """\
class Engine:
    def __init__(self, model, optimizer, accumulate=4):
        self.model, self.optimizer, self.accumulate = model, optimizer, accumulate
    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
    def train(self, loader):
        for i, (x, y) in enumerate(loader):
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            if (i + 1) % self.accumulate == 0:
                self.update()
"""
# A helper whose name is also that of something it calls.
SCALED = METHOD.replace(
    "optimizer.step()", "scaler.step(self.optimizer)\n        self.scaler.update()"
)
SCALED = (
    SCALED.replace("loss.backward()", "self.scaler.scale(loss).backward()")
    .replace("(self, model,", "(self, scaler: torch.amp.GradScaler, model,")
    .replace("        self.model, ", "        self.scaler = scaler\n        self.model, ")
)
FUNCTION = """\
def update(optimizer):
    optimizer.step()
    optimizer.zero_grad()
def train(model, loader, n):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        for i, (x, y) in enumerate(loader):
            loss = F.mse_loss(model(x), y)
            loss.backward()
            if (i + 1) % n == 0:
                update(optimizer)
"""
CLOSURE = """\
def train(model, optimizer, loader, cfg):
    def update():
        optimizer.step()
        optimizer.zero_grad()
    for epoch in range(cfg.epochs):
        for i, (x, y) in enumerate(loader):
            loss = F.mse_loss(model(x), y)
            loss.backward()
            if (i + 1) % cfg.accum == 0:
                update()
"""
BOTH = """\
class Engine:
    def backward(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
    def train(self, loader):
        for i, (x, y) in enumerate(loader):
            self.backward(x, y)
            if (i + 1) % self.accumulate == 0:
                self.update()
"""
PIECES = """\
def accumulate(model, pieces):
    for x, y in pieces:
        loss = F.mse_loss(model(x), y)
        loss.backward()
def train(model, optimizer, loader):
    for patches in loader:
        accumulate(model, patches)
        optimizer.step()
        optimizer.zero_grad()
"""
FLAG = CLOSURE.replace(
    "            if (i + 1) % cfg.accum == 0:",
    "            ready = (i + 1) % cfg.accum == 0\n            if ready:",
)


def unit_of(text):
    [unit] = units_from_bytes(text.encode(), "train.py")
    return unit


def said(text, code="INS201"):
    unit = unit_of(HEAD + text)
    before = judge(unit)
    [finding] = [finding for finding in before.findings if finding.code == code]
    fix = prove(unit, finding, before, judge=judge)
    return None if fix is None else fix.title


def mended(text):
    return fix_unit(unit_of(HEAD + text), unsafe=False, judge=judge, accept=lambda _, f: f)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (METHOD, "self.accumulate"),
        (SCALED, "self.accumulate"),
        (FUNCTION, "n"),
        (FUNCTION.replace("% n", "% 4"), "4"),
        (FUNCTION.replace("% n", "% EVERY").replace("def up", "EVERY = 4\ndef up"), "EVERY"),
        (CLOSURE, "cfg.accum"),
        (FLAG, "cfg.accum"),
    ],
)
def test_a_loss_is_divided_by_what_the_gate_says(text, size):
    fixed = mended(text)
    whole = f"size = min({size}, len(loader) - i // {size} * {size})"
    assert whole in fixed.text
    assert "(loss / size)" in fixed.text or "scale(loss / size)" in fixed.text
    assert fixed.remaining == ()


def test_a_backward_in_a_helper_gets_a_number_that_is_known_there():
    assert said(BOTH).startswith("divide the loss by `self.accumulate`")
    local = BOTH.replace("self.accumulate", "n").replace("(self, loader)", "(self, loader, n)")
    assert said(local) is None
    other = local.replace("(self, x, y)", "(self, x, y, n=1)")
    assert said(other) is None


def test_the_rounds_of_a_loop_in_a_helper():
    assert said(PIECES) == "divide the loss by `len(pieces)`"


def test_a_helper_that_is_called_twice_has_the_gate_of_one_call():
    twice = CLOSURE + "        update()\n"
    assert "cfg.epochs" not in (said(twice) or "")
    assert "len(" not in (said(twice) or "")


@pytest.mark.parametrize("text", [METHOD, FUNCTION, CLOSURE])
@pytest.mark.parametrize("wrong", ["len(loader)", "7", "unknown()", "x.shape[0]"])
def test_another_divisor_is_not_proved_though_no_rule_finds_it(monkeypatch, text, wrong):
    monkeypatch.setattr(unscaled_accumulation, "window_sizes", lambda *_: [wrong])
    unit = unit_of(HEAD + text.replace("loss.backward()", f"(loss / {wrong}).backward()"))
    assert "INS201" not in {finding.code for finding in judge(unit).findings}
    assert said(text) is None


@pytest.mark.parametrize("wrong", ["len(loader)", "cfg.epochs", "unknown()"])
def test_a_wrong_divisor_does_not_join_another_fix(monkeypatch, wrong):
    monkeypatch.setattr(unscaled_accumulation, "window_sizes", lambda *_: [wrong])
    fixed = mended(CLOSURE)
    assert "loss.backward()" in fixed.text
    assert [finding.code for finding in fixed.remaining] == ["INS201"]


MAIN = """\
import torch
from engine import Engine
def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    engine = Engine(model, optimizer)
    for epoch in range(3):
        engine.train(loader)
"""


def test_a_diff_counts_what_the_fixes_would_leave(tmp_path, monkeypatch, capsys):
    # The loop is judged with the engine as it would be, and not as it lies there.
    kept = "            loss.backward()\n            self.history.append(loss)\n"
    text = METHOD.replace("            loss.backward()\n", kept) + "            self.sched.step()\n"
    (tmp_path / "engine.py").write_text(HEAD + text)
    (tmp_path / "train.py").write_text(MAIN)
    monkeypatch.chdir(tmp_path)
    main(["check", "--no-cache", "--jobs=1", "--diff", "."])
    would = capsys.readouterr().err
    assert (tmp_path / "engine.py").read_text() == HEAD + text
    main(["check", "--no-cache", "--jobs=1", "--fix", "--output-format=json", "."])
    left = len(json.loads(capsys.readouterr().out))
    assert would == f"--fix would mend 2 problems in 1 file.\n{left} would remain.\n"
    assert left == 1
