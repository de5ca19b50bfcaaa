"""Branches for a torch that nobody has any more."""

import pytest

from instep.check.execute.program import Project
from instep.check.judge import judge
from instep.check.sources import read_units
from tests.check.execute.run import value

OLD = """\
import torch
from packaging import version
is_old = False
if version.parse(torch.__version__) < version.parse("1.6"):
    is_old = True
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    torch.nn.functional.mse_loss(model(x), y).backward()
    if is_old:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ('version.parse(torch.__version__) < version.parse("1.6")', False),
        ('version.parse(torch.__version__) >= version.parse("1.6.0")', True),
        ('LooseVersion("1.5") < LooseVersion(torch.__version__)', True),
        ('torch.__version__ <= "1.12.1"', False),
        ('torch.__version__ > "2.0"', True),
    ],
)
def test_a_current_torch_is_newer(test, holds):
    assert value(f"import torch\nv = {test}") is holds


@pytest.mark.parametrize(
    "test",
    [
        'version.parse(torch.__version__) < version.parse("2.4")',
        'numpy.__version__ < "1.6"',
        'torch.__version__ == "1.6"',
        'torch.__version__ < "nightly"',
        "torch.__version__ < minimum",
        'self.torch.__version__ < "1.6"',
    ],
)
def test_of_others_nothing_is_known(test):
    assert not isinstance(value(f"import torch\nv = {test}"), bool)


@pytest.mark.parametrize(
    ("torch", "count"), [("torch==1.5.0", 1), ("torch==1.6.0", 0), ("torch>=1.10", 0)]
)
def test_what_a_project_is_for_counts(tmp_path, torch, count):
    (tmp_path / "train.py").write_text(OLD)
    (tmp_path / "requirements.txt").write_text(f"{torch}\n")
    file = str(tmp_path / "train.py")
    (unit,) = read_units(file)
    found = judge(unit, project=Project(), file=file).findings
    assert sum(finding.code == "INS301" for finding in found) == count
