"""What the files around a module say of it."""

import pytest

from instep.check.execute.around import Around
from instep.check.judge import Project, judge
from instep.check.sources import read_units

LATE = """\
import torch
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
for epoch in range(9):
    scheduler.step()
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
READS = """\
import torch
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    print([p.grad.norm() for p in model.parameters()])
"""
GATED = """\
import torch


def train(model, loader, optimizer, args):
    for i, (x, y) in enumerate(loader):
        (torch.nn.functional.mse_loss(model(x), y) / args.accum_iter).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if (i + 1) % args.accum_iter == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
"""


def found(folder, source, name="train.py"):
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(source)
    [unit] = read_units(str(file))
    project = Project()
    findings = judge(unit, project=project).findings
    return [(f.code, f.severity.word) for f in findings], project.asked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PyTorch 0.4.1", (0, 4)),
        ("torch==1.10.2", (1, 10)),
        ("written for `pytorch` v1.0", (1, 0)),
        ("- PyTorch: 1.0", (1, 0)),
        ("pytorch=0.4\ntorch 1.0, torchvision 0.2", (1, 0)),
        ("torch>=1.0", None),
        ("PyTorch 1.0+", None),
        ("PyTorch 1.0.1 or later", None),
        ("PyTorch 1.0-1.7", None),
        ("- python 3.6\n- pytorch 1.0\n- librosa", (1, 0)),
        ("PyTorch 1.0 - 1.7", None),
        ("PyTorch 1.10 and above", None),
        ("Python 3.6", None),
    ],
)
def test_the_torch_of_a_project(tmp_path, text, expected):
    (tmp_path / "README.md").write_text(text)
    assert Around().torch(str(tmp_path)) == expected


@pytest.mark.parametrize("name", ["requirements.txt", "environment.yml", "setup.py", "README"])
def test_who_tells_which_torch_it_is_for(tmp_path, name):
    (tmp_path / name).write_text("torch==1.0.1\n")
    findings, asked = found(tmp_path, LATE)
    assert findings == []
    assert {str(tmp_path / name), str(tmp_path)} <= asked  # their change changes what is said


def test_schedulers_came_first_before_1_1(tmp_path):
    assert found(tmp_path, LATE)[0] == [("INS401", "warning")]
    (tmp_path / "README.md").write_text("Needs PyTorch 1.1.0")
    assert found(tmp_path, LATE)[0] == [("INS401", "warning")]
    (tmp_path / "README.md").write_text("Needs PyTorch 1.0.0")
    assert found(tmp_path, LATE)[0] == []
    assert found(tmp_path, LATE, "src/train.py")[0] == []  # the folder above is its project's


def test_cleared_gradients_were_zeros_before_2_0(tmp_path):
    assert found(tmp_path, READS)[0] == [("INS501", "warning")]
    (tmp_path / "requirements.txt").write_text("torch==1.10.2")
    assert found(tmp_path, READS)[0] == []


@pytest.mark.parametrize(
    ("name", "text", "severity"),
    [
        ("main.py", "parser.add_argument('--accum_iter', default=1, type=int)", "info"),
        ("main.py", "parser.add_argument(\n    '--accum_iter',\n    default=4)", "error"),
        ("main.py", "add_argument('--accum_iter')\nadd_argument('--other', default=1)", "warning"),
        ("main.py", "add_argument('--accum_iter', default=1.5)", "warning"),
        ("config.yaml", "train:\n  accum_iter: 1  # batches\n", "info"),
        ("config.yaml", "accum_iter: 16\n", "error"),
        ("config.json", '{\n  "accum_iter": 1,\n  "lr": 1\n}', "info"),
        ("configs/base.toml", "accum_iter = 1\n", "info"),
        ("notes.txt", "accum_iter: 1", "warning"),
    ],
)
def test_options_are_looked_up(tmp_path, name, text, severity):
    assert ("INS301", "warning") in found(tmp_path, GATED)[0]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert ("INS301", severity) in found(tmp_path, GATED)[0]


def test_the_larger_of_two_numbers_counts(tmp_path):
    (tmp_path / "a.yaml").write_text("accum_iter: 1")
    (tmp_path / "b.yaml").write_text("accum_iter: 8")
    assert Around().number(str(tmp_path), "accum_iter") == 8


def test_folders_that_are_not_there_say_nothing(tmp_path):
    around = Around()
    assert around.torch(str(tmp_path / "gone")) is None
    assert around.number(str(tmp_path / "gone"), "accum_iter") == 0


def test_nothing_above_an_unmarked_folder_is_read(tmp_path):
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (tmp_path / "README.md").write_text("PyTorch 1.0.0")
    assert found(deep, LATE)[0] == [("INS401", "warning")]
    (tmp_path / "requirements.txt").write_text("numpy")  # a root, up to which it is one project
    assert found(deep, LATE)[0] == []


@pytest.mark.parametrize(("number", "is_quoted"), [(2, True), (4, True), (50, True), (100, False)])
def test_a_default_that_is_quoted_is_the_one_that_is_written(tmp_path, number, is_quoted):
    (tmp_path / "options.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        f'parser.add_argument("--accum_iter", type=int, default={number})\n'
    )
    (tmp_path / "train.py").write_text(GATED.replace(" or i + 1 == len(loader)", ""))
    file = str(tmp_path / "train.py")
    (unit,) = read_units(file)
    messages = [f.message for f in judge(unit, project=Project(), file=file).findings]
    assert any(f"{number}, the gate's default" in text for text in messages) is is_quoted
    assert any("default" in text for text in messages) is is_quoted
    assert any("not a multiple of" in text for text in messages)
