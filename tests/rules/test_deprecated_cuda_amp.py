import pytest

from instep.check.fixing import prove, with_fixes
from instep.check.judge import judge
from instep.check.sources import units_from_bytes
from instep.rules import deprecated_cuda_amp as rule
from instep.trace import Called
from tests.rules.lines import at, judged


@pytest.mark.parametrize(
    ("api", "new"),
    [
        ("torch.cuda.amp.autocast", '`torch.amp.autocast("cuda", ...)`'),
        ("torch.cuda.amp.GradScaler", '`torch.amp.GradScaler("cuda", ...)`'),
        ("torch.cuda.amp.grad_scaler.GradScaler", '`torch.amp.GradScaler("cuda", ...)`'),
        ("torch.cuda.amp.custom_bwd", '`torch.amp.custom_bwd(device_type="cuda")`'),
    ],
)
def test_old_names(api, new):
    severity, message = judged(rule, *[at(7, Called(api))] * 2)[7]
    assert severity == "info"
    assert message.endswith(f"will be removed; {new} does the same.")


@pytest.mark.parametrize("api", ["torch.amp.autocast", "torch.autocast", "torch.cuda.amp.other"])
def test_silent(api):
    assert judged(rule, at(7, Called(api))) == {}


SPELLED_OUT = """\
import torch

scaler = torch.cuda.amp.GradScaler()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    with torch.cuda.amp.autocast():
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
with torch.no_grad(), torch.cuda.amp.autocast(enabled=False):
    model(x)
"""
IMPORTED = SPELLED_OUT.replace("torch.cuda.amp.", "").replace(
    "import torch\n", "import torch\nfrom torch.cuda.amp import GradScaler, autocast\n"
)
BESIDE = SPELLED_OUT.replace("    optimizer.zero_grad()\n", "")  # a mistake that is none of ours


@pytest.mark.parametrize("text", [SPELLED_OUT, IMPORTED, BESIDE])
def test_all_of_a_file_are_proved_at_once_and_have_the_fixes_that_each_has_alone(text):
    [unit] = units_from_bytes(text.encode(), "a.py")
    judgement = judge(unit)
    ours = [finding for finding in judgement.findings if finding.code == rule.CODE]
    judged = []

    def count(unit):
        judged.append(unit)
        return judge(unit)

    offered = with_fixes(unit, judgement, judge=count, findings=ours)
    assert [each.fix for each in offered] == [
        prove(unit, finding, judgement, judge=judge) for finding in ours
    ]
    assert len(ours) == 3
    assert len(judged) == 1
    assert all(each.fix is not None for each in offered)
