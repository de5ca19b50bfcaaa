"""Trainings that stand apart are gone through once, and what is found is the same."""

import pytest

from instep.check.execute import apart
from instep.check.execute.entries import Runner
from instep.check.execute.program import Project
from instep.check.judge import judge
from tests.check.execute.run import unit_of

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
TRAIN = """\
def train(steps, loud=False):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(range(64), batch_size=2)
    for x, y in loader:
        {clear}
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if {condition}:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
OTHER = """\
def other(flag):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in torch.utils.data.DataLoader(range(64)):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        if flag():
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
MAIN = """\
def main(ready):
    train(1)
    if ready():
        other(ready)
    train(2)
main(check)
"""


def text(*parts, condition="loud", clear="optimizer.zero_grad()", train=TRAIN):
    return HEAD + train.format(condition=condition, clear=clear) + "\n".join(parts)


def backwards(source):
    """How many backwards each path of a module shows."""
    project = Project()
    run = Runner(project.adopt(unit_of(source), None), project).all()
    return [sum(event.kind == "backward" for event in path.trace) for path in run.paths]


def findings(source):
    return [(f.code, f.place.line, f.message, f.condition) for f in judge(unit_of(source)).findings]


@pytest.fixture
def apart_off(monkeypatch):
    """Judge as if nothing stood apart."""

    def off():
        monkeypatch.setattr(apart, "key_of", lambda *_: None)

    return off


def test_another_path_does_not_go_through_them_again():
    base, *others = backwards(text(OTHER, MAIN))
    assert others
    assert max(others) < base  # `train` was shown, and is not shown again


def test_what_asks_for_the_decision_is_gone_through_again():
    source = text(OTHER, MAIN, condition="torch.backends.loud()")
    base, *others = backwards(source)
    assert any(count >= base for count in others)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("def train(steps", "rate = [0.1]\ndef train(steps"),
        ("lr=0.1", "lr=rates[0]"),
        (
            "    model = nn.Linear(2, 2)\n",
            "    global seen\n    seen = 1\n    model = nn.Linear(2, 2)\n",
        ),
        ("        optimizer.step()\n", "        optimizer.step()\n    return model\n"),
        ("loud=False", "loud=LOUD"),
        ("        loss.backward()\n", "        loss.backward()\n        Log.last = loss\n"),
    ],
)
def test_what_touches_something_outside_does_not_stand_apart(was, now):
    train = TRAIN.replace(was, now, 1)
    if "rate = [0.1]" in now:
        train = train.replace("lr=0.1", "lr=rate[0]")
    before = "rates = [0.1]\nLOUD = [False]\nclass Log:\n    last = None\n"
    base, *others = backwards(text(OTHER, MAIN, train=before + train))
    assert others
    assert min(others) > base / 3  # `train` is gone through on every path


def test_a_setting_that_another_path_changes_is_noticed():
    main = """\
def main(ready):
    train(1)
    if ready():
        global EVERY
        EVERY = 4
        train(2)
    train(3)
main(check)
"""
    loop = "    for x, y in loader:\n"
    train = "EVERY = 1\n" + TRAIN.replace(loop, f"    every = EVERY\n{loop}")
    each, *_ = backwards(text("train(1)\n"))
    assert backwards(text(main, train=train)) == [3 * each, each]
    assert backwards(text(main.replace("EVERY = 4", "pass"), train=train)) == [3 * each]


@pytest.mark.parametrize("condition", ["loud", "torch.backends.loud()", "steps > 1", "ready()"])
@pytest.mark.parametrize("clear", ["optimizer.zero_grad()", "pass", "model.eval()"])
def test_what_is_found_is_the_same(condition, clear, apart_off):
    source = text(OTHER, MAIN, condition=condition, clear=clear)
    found = findings(source)
    apart_off()
    assert findings(source) == found


def test_windows_of_two_are_looked_at_in_both_lengths():
    gated = TRAIN.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)").replace(
        "        optimizer.step()", "        if (i + 1) % 2 == 0:\n            optimizer.step()"
    )
    source = text(OTHER, MAIN, train=gated, clear="pass")
    shown = backwards(source)
    assert len(set(shown)) > 1
    assert any(count > shown[0] for count in shown[1:])


def test_settings_of_another_kind_are_other_settings():
    main = """\
def main(ready):
    if ready():
        train(1)
    else:
        train(True)
main(check)
"""
    each, *_ = backwards(text("train(1)\n"))
    assert backwards(text(main)) == [each, each]
    assert backwards(text(main.replace("True", "1"))) == [each]


GRID = """\
def main(ready):
    if ready():
        print()
    for a in (1, 2):
        for b in (True, False):
            for c in (1, 2):
                train(a, b)
main(check)
"""


def test_a_product_of_settings_is_varied_one_at_a_time_without_an_optimizer():
    train = TRAIN.replace("    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")
    train = train.replace("        optimizer.step()\n", "").replace("{clear}", "model.zero_grad()")
    train = HEAD + train.format(condition="False")
    each, *_ = backwards(train + "train(1, True)\n")
    base, *_ = backwards(train + GRID)
    assert base == 4 * each


def test_on_another_path_the_same_settings_are_varied():
    grid = GRID.replace("print()", "other(ready)")
    each, *_ = backwards(text("train(1)\n"))
    base, *others = backwards(text(OTHER, grid))
    assert base > 4 * each
    assert others
    assert max(others) <= each  # of `other` alone
