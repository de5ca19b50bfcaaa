"""What a summary may say of fixes is what the checker makes of the same lines."""

from pathlib import Path

import pytest

from instep.commands.mendable import mendable
from instep.rules import Finding, Severity
from instep.rules.registry import rulebook
from instep.trace import Place

BAD = rulebook()["INS101"].BAD
LINE = next(at for at, text in enumerate(BAD.splitlines(), 1) if text.endswith("# <- here"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my train.py").write_text(BAD)
    return str(tmp_path)


def found(code="INS101", line=LINE, path="my train.py"):
    return Finding(code, rulebook()[code].NAME, Severity.ERROR, Place(path, line), "it is wrong.")


def test_what_is_mended_is_counted_and_nothing_is_written(folder):
    told = mendable([found(), found(line=1)], "my train.py", folder)
    assert told == (1, "instep check --fix 'my train.py'")
    absolute = found(path=str(Path(folder, "my train.py")))
    assert mendable([absolute], None, folder) == told
    assert Path(folder, "my train.py").read_text() == BAD


@pytest.mark.parametrize(
    "finding",
    [
        found(line=LINE + 1),
        found("INS605"),
        found("INS103"),
        found(path="gone.py"),
        found(path="<cell>"),
        found(path="/elsewhere/site-packages/theirs.py"),
    ],
)
def test_what_is_not_mended_is_not_counted(finding, folder):
    assert mendable([finding], "my train.py", folder) is None


def test_a_fix_that_is_a_choice_is_not_counted(folder):
    text = (
        "import torch\nmodel = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "def train(loader, criterion):\n"
        "    for i, (x, y) in enumerate(loader):\n"
        "        criterion(model(x), y).backward()\n"
        "        if (i + 1) % 4 == 0:\n"
        "            optimizer.step()\n"
        "            optimizer.zero_grad()\n"
    )
    Path(folder, "choice.py").write_text(text)
    assert mendable([found("INS201", 6, "choice.py")], "choice.py", folder) is None
