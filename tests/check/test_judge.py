from pathlib import Path

import pytest

from instep.check.judge import Judgement, Project, judge
from instep.check.sources import read_units, units_from_bytes
from instep.rules import Severity
from tests.check.labelled.test_labels import PROJECTS

LOOP = """\
import torch
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""


def unit_of(text, path="a.py"):
    [unit] = units_from_bytes(text.encode(), path)
    return unit


def codes(judgement):
    return [finding.code for finding in judgement.findings]


def test_findings_come_in_the_order_of_the_text_and_have_nodes():
    judged = judge(unit_of(LOOP + LOOP + "scaler = torch.cuda.amp.GradScaler()\n"))
    assert codes(judged) == ["INS101", "INS101", "INS308"]
    assert [finding.place.line for finding in judged.findings] == [5, 11, 13]
    assert all(finding.place in judged.nodes for finding in judged.findings)
    assert all(finding.fix is None for finding in judged.findings)
    assert judged.loops > 0


def test_only_the_rules_that_are_asked_for():
    unit = unit_of(LOOP + "scaler = torch.cuda.amp.GradScaler()\n")
    assert codes(judge(unit, codes=frozenset({"INS308"}))) == ["INS308"]
    assert codes(judge(unit, codes=frozenset())) == []


def test_what_speaks_of_no_training_is_not_executed():
    assert judge(unit_of("for x in y:\n    optimizer.step()\n")) == Judgement()


def test_the_branch_that_a_finding_needs_is_said():
    text = LOOP.replace("    optimizer.step()", "    if late:\n        optimizer.step()")
    [finding] = judge(unit_of(text)).findings
    assert finding.condition == "when late"


APEX = """\
import torch
from apex import amp
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y) / 4
        if apex:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_a_branch_is_not_said_if_the_other_one_shows_the_same():
    [finding] = judge(unit_of(APEX)).findings
    assert (finding.code, finding.condition) == ("INS202", None)


def test_a_branch_is_said_if_the_other_one_is_right():
    step = "\n            optimizer.step()\n            optimizer.zero_grad()"
    text = APEX.replace("            loss.backward()", "            loss.backward()" + step)
    [finding] = judge(unit_of(text), codes=frozenset({"INS202"})).findings
    assert finding.condition == "when apex"


def test_a_module_that_is_too_long_to_follow_is_not_judged_and_that_is_said():
    judged = judge(unit_of(LOOP + "".join(f"x{n} = f(x{n})\n" for n in range(40_000))))
    assert judged.findings == ()
    [unjudged] = judged.unjudged
    assert (unjudged.place.line, "too many steps" in unjudged.reason) == (1, True)


@pytest.fixture
def project(monkeypatch):
    monkeypatch.chdir(PROJECTS / "wrong" / "ins303_helper_clips_too_early")
    return Project()


def test_what_is_wrong_in_an_imported_file_is_elsewhere(project):
    [unit] = read_units("train.py")
    judged = judge(unit, project=project)
    assert judged.findings == ()
    [finding] = judged.elsewhere
    assert (finding.code, finding.place.path, finding.place.line) == ("INS303", "amp_tools.py", 9)


def test_the_files_that_a_judgement_rests_on(project):
    [unit] = read_units("train.py")
    followed = judge(unit, project=project).followed
    assert str(Path("amp_tools.py").absolute()) in followed
    assert any(not Path(path).exists() for path in followed)
    [alone] = units_from_bytes(unit.text.encode(), "-", kind="stdin")
    assert judge(alone, project=project).followed == frozenset()
    assert judge(unit, project=project).followed == followed


BRANCHES = """\
import torch
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(x), y) / 4
    if use_amp:
        scaler.scale(loss).backward()
    else:
        loss.backward()
    if (i + 1) % 4 == 0:
        if use_amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()
"""


def test_the_same_mistake_in_both_branches_is_told_once():
    judged = judge(unit_of(BRANCHES))
    assert codes(judged) == ["INS202", "INS202"]
    assert {(code, place.line) for code, place in judged.again} == {("INS202", 14)}


@pytest.mark.parametrize(("branches", "severity"), [(2, Severity.ERROR), (9, Severity.WARNING)])
def test_what_no_path_has_seen_may_clear(branches, severity):
    """Of nine branches of a loop three are not followed, and any may hold what seems missing."""
    asked = "".join(
        f"    if flags[{at}]:\n        other.step()\n    else:\n        third.step()\n"
        for at in range(branches)
    )
    source = (
        "import torch\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "other = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "third = torch.optim.SGD(mlp.parameters(), lr=0.1)\n"
        "for x, y in loader:\n"
        f"{asked}"
        "    loss = torch.nn.functional.cross_entropy(model(x), y)\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    found = {finding.code: finding.severity for finding in judge(unit_of(source)).findings}
    assert found["INS101"] is severity
