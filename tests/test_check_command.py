"""`instep check` from end to end: real files, the real judge, what is typed and what comes out."""

import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from instep.cli import main
from instep.commands import present

PROJECTS = Path(__file__).parent / "check" / "labelled" / "projects"
LOOP = """\
import torch

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""
FIXED = LOOP.replace("    loss.backward()", "    optimizer.zero_grad()\n    loss.backward()")
AMP = LOOP.replace("loader:\n", "loader:\n    optimizer.zero_grad()\n") + (
    "scaler = torch.cuda.amp.GradScaler()\n"
)
FOUND = "INS101 missing-zero-grad: `optimizer` is never cleared"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "INSTEP_CACHE_DIR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("said", "columns", "width"),
    [("72", 90, 72), ("", 90, 90), ("0", 90, 90), ("wide", 90, 90), ("", 0, 100), ("", None, 100)],
)
def test_the_width_is_that_of_the_terminal(monkeypatch, said, columns, width):
    def ask(_file=None):
        if columns is None:
            raise OSError
        return os.terminal_size((columns, 24))

    monkeypatch.setenv("COLUMNS", said)
    monkeypatch.setattr(os, "get_terminal_size", ask)
    assert present._width() == width == shutil.get_terminal_size((100, 24)).columns


@pytest.fixture
def typed(capsysbinary, monkeypatch):
    def run(*words, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["check", *words])
        shown = capsysbinary.readouterr()
        return code, shown.out.decode(), shown.err.decode()

    return run


def findings(typed, *words):
    code, out, err = typed("--output-format", "json", *words)
    assert err == ""
    found = json.loads(out)
    assert code == (1 if any(f["severity"] != "info" for f in found) else 0)
    return found


def places(found):
    return [(f["path"], f["line"], f["column"], f["code"]) for f in found]


ENCODINGS = {
    "plain": lambda text: text.encode(),
    "crlf": lambda text: text.replace("\n", "\r\n").encode(),
    "bom": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "tabs": lambda text: text.replace("    ", "\t").encode(),
    "latin": lambda text: "# coding: latin-1\n# é\n".encode("latin-1") + text.encode(),
    "no-newline": lambda text: text.rstrip("\n").encode(),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_files_of_every_make_are_mended_as_they_are_written(here, typed, name):
    file = here / "train.py"
    file.write_bytes(ENCODINGS[name](LOOP))
    [found] = findings(typed)
    text = ENCODINGS[name](LOOP).decode("latin-1" if name == "latin" else "utf-8-sig")
    line = text.replace("\r\n", "\n").split("\n")[found["line"] - 1]
    assert line[found["column"] - 1 :].startswith("loss.backward()")
    code, out, err = typed("--diff")
    assert (code, file.read_bytes()) == (1, ENCODINGS[name](LOOP))
    assert out.startswith("--- train.py\n+++ train.py\n@@ ")
    code, out, err = typed("--fix")
    assert (code, out, err) == (0, "Fixed 1 problem.\nNo problems found in 1 file.\n", "")
    after = file.read_bytes()
    assert after in {ENCODINGS[name](FIXED), ENCODINGS[name](cleared_first(LOOP))}
    assert typed("--fix")[0] == 0
    assert file.read_bytes() == after


def cleared_first(text):
    return text.replace("loader:\n", "loader:\n    optimizer.zero_grad()\n")


BROKEN = {
    "syntax-error": (LOOP + "loss.backward(\n", 9),
    "python-2": (LOOP + "print 'loss', loss\n", 9),
    "undecodable": (LOOP.encode() + b"# \xff\n", 9),
    "null-bytes": (LOOP + "# \0\n", 9),
    "too-deep": (LOOP + "x = 1" + "+1" * 400 + "\n", 9),
    "bomb": (LOOP + "x = " + "-" * 5000 + "1\n", 1),
    "chain": (LOOP + "x = a" + ".b()" * 100_000 + "\n", 1),
    "too-large": (LOOP + "x = 1\n" * 100_000, 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_checked_is_one_diagnostic(here, typed, name):
    content, line = BROKEN[name]
    (here / "broken.py").write_bytes(content if isinstance(content, bytes) else content.encode())
    for words in ([], ["broken.py"], ["--fix"], ["--jobs", "2"]):
        code, out, err = typed(*words)
        assert (code, err) == (2, "")
        first, why, fix, more, *rest = out.splitlines()
        assert first.startswith(f"broken.py:{line}:")
        assert [part.split()[0] for part in (why, fix, more)] == ["why:", "fix:", "more:"]
        assert rest == ["", "1 file was not checked."]
    (here / "train.py").write_text(LOOP)
    code, out, err = typed()
    assert code == 1
    assert FOUND in out
    assert "1 file was not checked." in out


def test_a_file_of_many_lines_comes_to_an_end(here, typed):
    (here / "long.py").write_text(LOOP + "".join(f"x{n} = f(x{n})\n" for n in range(20_000)))
    code, out, err = typed("-v")
    assert code in {0, 1}
    assert "Followed 0 ways through training code; 1 could not be judged." in out


def test_a_notebook_is_mended_cell_by_cell(here, typed):
    head, body = LOOP.split("for x")
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Training\n"]},
        {"cell_type": "code", "metadata": {}, "source": f"%matplotlib inline\n{head}"},
        {"cell_type": "code", "metadata": {"id": 3}, "source": f"for x{body}".splitlines(True)},
    ]
    notebook = {"cells": cells, "metadata": {"é": 1}, "nbformat": 4, "nbformat_minor": 5}
    file = here / "a.ipynb"
    file.write_text(json.dumps(notebook, indent=1) + "\n")
    code, out, err = typed()
    assert code == 1
    assert out.startswith(f"a.ipynb:cell 2:line 3: error {FOUND}")
    [found] = findings(typed)
    assert (found["cell"], found["line"], found["column"]) == (2, 3, 5)
    assert typed("--fix")[0] == 0
    after = json.loads(file.read_text())
    assert after["cells"][:2] == cells[:2]
    assert "".join(after["cells"][2].pop("source")) in {
        f"for x{FIXED.split('for x')[1]}",
        f"for x{cleared_first(LOOP).split('for x')[1]}",
    }
    assert after | {"cells": 0} == notebook | {"cells": 0}
    assert file.read_text().endswith("}\n")


def test_the_blocks_of_a_text_are_mended_in_place(here, typed):
    def text(loop):
        block = "".join(f"  {line}".rstrip() + "\n" for line in loop.splitlines())
        return f"# Training\n\n- a loop\n\n  ```python\n{block}  ```\n\n```\nloss.backward(\n```\n"

    file = here / "README.md"
    file.write_text(text(LOOP))
    assert places(findings(typed)) == [("README.md", 12, 7, "INS101")]
    assert typed("--fix")[0] == 0
    assert file.read_text() in {text(FIXED), text(cleared_first(LOOP))}


def test_standard_input(here, typed):
    code, out, err = typed("-", stdin=LOOP.encode())
    assert (code, err) == (1, "")
    assert out.startswith(f"-:7:5: error {FOUND}")
    code, out, err = typed("--fix", "-", "--stdin-filename", "src/a.py", stdin=LOOP.encode())
    assert code == 0
    assert out in {FIXED, cleared_first(LOOP)}
    assert err == "Fixed 1 problem.\nNo problems found in 1 file.\n"


def test_a_link_and_its_file_are_one(here, typed):
    (here / "train.py").write_text(LOOP)
    (here / "link.py").symlink_to("train.py")
    assert [f["path"] for f in findings(typed)] == ["train.py"]
    assert [f["path"] for f in findings(typed, "link.py")] == ["link.py"]
    assert typed("--fix", "link.py")[0] == 0
    assert (here / "link.py").is_symlink()
    assert "zero_grad" in (here / "train.py").read_text()


def test_a_file_that_may_not_be_written_is_said(here, typed, monkeypatch):
    file = here / "train.py"
    file.write_text(LOOP)

    def closed(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", closed)  # root may write where nobody may
    code, out, err = typed("--fix")
    assert code == 2
    assert err.startswith("instep: train.py: it cannot be written (Permission denied).\n  why:")
    assert file.read_text() == LOOP
    monkeypatch.undo()
    os.chdir(here)
    file.chmod(0o444)
    assert typed("--fix")[0] == 0
    assert file.stat().st_mode & 0o777 == 0o444


def test_only_what_is_selected_is_reported_and_mended(here, typed):
    wrong = AMP + LOOP.replace("import torch\n\n", "")
    file = here / "train.py"
    file.write_text(wrong)
    assert {f["code"] for f in findings(typed)} == {"INS101", "INS308"}
    assert {f["code"] for f in findings(typed, "--select", "INS3")} == {"INS308"}
    assert findings(typed, "--ignore", "INS101,INS308") == []
    assert typed("--fix", "--select", "deprecated-cuda-amp")[0] == 0
    after = file.read_text()
    assert 'torch.amp.GradScaler("cuda")' in after.replace("'", '"')
    assert after.count("zero_grad") == wrong.count("zero_grad")


def test_info_is_reported_mended_and_lets_the_run_pass(here, typed):
    (here / "train.py").write_text(AMP)
    [found] = findings(typed)
    assert (found["code"], found["severity"]) == ("INS308", "info")
    assert typed()[0] == 0
    assert typed("--severity", "info")[0] == 1
    assert typed("--fix")[1].startswith("Fixed 1 problem.")
    assert "cuda.amp" not in (here / "train.py").read_text()


def test_comments_silence(here, typed):
    file = here / "train.py"
    file.write_text(LOOP.replace("backward()", "backward()  # instep: ignore[missing-zero-grad]"))
    assert typed("-v")[1].endswith("Comments silence 1 finding.\n\nNo problems found in 1 file.\n")
    assert typed("--fix")[0] == 0
    assert "zero_grad" not in file.read_text()
    file.write_text(LOOP + "# instep: skip-file\n")
    assert typed() == (0, "No problems found in 1 file.\n", "")
    file.write_text(FIXED.replace("step()", "step()  # noqa: INS101"))
    assert [f["code"] for f in findings(typed)] == ["INS001"]
    assert typed("--fix")[0] == 0
    assert file.read_text() == FIXED


def test_a_baseline_of_yesterday(here, typed):
    (here / "train.py").write_text(LOOP)
    assert typed("--write-baseline", "known.json")[0] == 0
    assert findings(typed, "--baseline", "known.json") == []
    (here / "train.py").write_text("# moved\n" * 5 + LOOP)
    assert findings(typed, "--baseline", "known.json") == []
    (here / "other.py").write_text(LOOP)
    assert [f["path"] for f in findings(typed, "--baseline", "known.json")] == ["other.py"]


def test_there_is_nothing_to_say_about_an_empty_file(here, typed):
    (here / "empty.py").write_text("")
    for words in ([], ["empty.py"], ["--fix", "empty.py"], ["--no-cache", "empty.py"]):
        assert typed(*words) == (0, "No problems found in 1 file.\n", "")
    assert typed("--diff", "empty.py") == (0, "", "Nothing to fix.\n")


def test_the_report_of_every_format(here, typed):
    (here / "train.py").write_text(LOOP)
    for name in ("text", "json", "sarif", "github"):
        code, out, err = typed("--output-format", name)
        assert (code, err) == (1, "")
        assert "missing-zero-grad" in out


@pytest.fixture
def project(here):
    def copy(name):
        shutil.copytree(PROJECTS / name, here / "project", dirs_exist_ok=True)
        return here / "project"

    return copy


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("name", [p.name for p in sorted((PROJECTS / "right").iterdir())])
def test_right_projects_are_silent(project, typed, name, jobs):
    project(f"right/{name}")
    assert findings(typed, "--jobs", jobs, "project") == []


WRONG = {
    "ins101_nobody_clears": ("engine/base.py", 17, 17, "INS101"),
    "ins303_helper_clips_too_early": ("amp_tools.py", 9, 5, "INS303"),
    "ins604_model_in_another_file": ("train.py", 6, 5, "INS604"),
}


def test_every_wrong_project_is_known():
    assert set(WRONG) == {p.name for p in (PROJECTS / "wrong").iterdir()}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_projects_are_found(here, project, typed, monkeypatch, name):
    root = project(f"wrong/{name}")
    path, *position = WRONG[name]
    for file in root.rglob("*.py"):  # large enough for several processes
        file.write_text(file.read_text() + "#" * 40_000)
    for words in (["--jobs", "1"], ["--jobs", "2"], ["--no-cache"]):
        assert places(findings(typed, *words, "project")) == [(f"project/{path}", *position)]
    assert places(findings(typed, str(root))) == [(str(root / path), *position)]
    monkeypatch.chdir(root)
    assert places(findings(typed)) == [(path, *position)]
    assert typed("--write-baseline", "known.json")[0] == 0
    assert findings(typed, "--baseline", "known.json") == []


def test_what_lies_in_several_files_is_not_mended(project, typed):
    for name in ("ins101_nobody_clears", "ins303_helper_clips_too_early"):
        root = project(f"wrong/{name}")
        [found] = findings(typed, "project")
        assert found["fix"] is None
        code, out, err = typed("--fix", "project")
        assert (code, err) == (1, "")
        assert out.endswith(f"Found 1 error in 1 of {len([*root.rglob('*.py')])} files.\n")
        shutil.rmtree(root)


def test_what_shows_in_several_files_and_lies_in_one_is_mended(project, typed):
    root = project("wrong/ins604_model_in_another_file")
    others = {file: file.read_text() for file in root.rglob("*.py") if file.name != "train.py"}
    code, out, err = typed("--fix", "project")
    assert (code, err) == (0, "")
    assert "Fixed 1" in out
    assert findings(typed, "project") == []
    assert {file: file.read_text() for file in others} == others


def test_a_helper_is_reported_though_only_its_loop_was_asked_for(project, typed, monkeypatch):
    monkeypatch.chdir(project("wrong/ins303_helper_clips_too_early"))
    assert places(findings(typed, "train.py")) == [WRONG["ins303_helper_clips_too_early"]]
    assert findings(typed, "train.py", "--exclude", "amp_tools.py") == []
    Path(".gitignore").write_text("amp_*\n")
    assert findings(typed, "train.py") == []


def test_what_is_in_an_imported_file_follows_its_content(project, typed):
    root = project("wrong/ins303_helper_clips_too_early")
    helper = root / "amp_tools.py"
    wrong = helper.read_text()
    assert len(findings(typed, "project/train.py")) == 1
    helper.write_text(wrong.replace("    torch.nn", "    scaler.unscale_(optimizer)\n    torch.nn"))
    assert findings(typed, "project/train.py") == []
    helper.write_text(wrong.replace("# expect", "# instep: ignore[clip-before-unscale]  # expect"))
    assert findings(typed, "project") == []
    assert typed("--fix", "project")[0] == 0
    assert "instep: ignore" in helper.read_text()
    helper.unlink()
    assert findings(typed, "project/train.py") == []
    helper.write_text(wrong)
    assert len(findings(typed, "project/train.py")) == 1
