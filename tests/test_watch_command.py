"""`instep watch` as it is typed: mostly in this process, in one of its own where that matters."""

import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

import instep
from instep.cli import main
from instep.explain import page

TRAIN = """
import sys

import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    loss = model(torch.ones(2, 4)).mean()
    loss.backward(){comment}
    optimizer.step()
"""
WRONG, MEANT = TRAIN.format(comment=""), TRAIN.format(comment="  # noqa: INS101")
RIGHT = WRONG.replace("    loss =", "    optimizer.zero_grad()\n    loss =")
LINE = "train.py:10:5: error INS101 missing-zero-grad: `optimizer` is never cleared"
SUMMARY = "instep: Watched 5 updates of `optimizer`: "
MENDS = "`instep check --fix train.py` mends it in the source.\n"
FOUND = f"1 error found.\ninstep: {MENDS}"
SOURCE = str(Path(instep.__file__).parents[1])


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    def made(text, name="train.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)

    return made


@pytest.fixture
def typed(capsys, monkeypatch):
    def run(*words):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", list(sys.argv))
            patched.setattr(sys, "path", list(sys.path))
            patched.setattr(sys, "stdout", sys.stdout)
            patched.setattr(sys, "stderr", sys.stderr)
            patched.setattr(sys, "excepthook", sys.excepthook)
            patched.setattr(sys, "meta_path", list(sys.meta_path))
            patched.setitem(sys.modules, "__main__", sys.modules["__main__"])
            code = main(["watch", *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def started(*words, environ=None, **options):
    command = [sys.executable, "-m", "instep", "watch", *words]
    path = os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])
    made = {**os.environ, "PYTHONPATH": path, **(environ or {})}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=made, stdout=pipe, stderr=pipe, text=True, **options)


def done(*words, **options):
    process = started(*words, **options)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


# What is told


def test_a_wrong_job_is_told_live_and_at_its_end(write, typed):
    write(WRONG + "print('mine', sys.argv)\n")
    code, out, err = typed("train.py", "--lr", "3", "--strict", "-q")
    assert code == 0
    assert out == "mine ['train.py', '--lr', '3', '--strict', '-q']\n"
    assert err.startswith(LINE)
    assert err.count(LINE) == 2  # the moment it was certain, and at the end with the lines
    assert "10 |     loss.backward()\n" in err
    assert err.endswith(f"\n\n{SUMMARY}{FOUND}")


def test_a_right_job_has_one_line(write, typed):
    write(RIGHT)
    assert typed("--strict", "train.py") == (0, "", f"{SUMMARY}no problems found.\n")


def test_strict_fails_a_wrong_job(write, typed):
    write(WRONG)
    assert typed("--strict", "train.py")[0] == 1
    assert typed("train.py")[0] == 0


def test_quiet_leaves_the_findings(write, typed):
    write(WRONG)
    _, out, err = typed("--quiet", "train.py")
    assert (out, err.count(LINE), "Watched" in err) == ("", 1, False)
    write(RIGHT)
    assert typed("-q", "train.py") == (0, "", "")


def test_comments_and_settings_count(write, typed):
    write(MEANT)
    assert typed("--strict", "train.py") == (0, "", f"{SUMMARY}no problems found.\n")
    write(WRONG)
    assert typed("--strict", "--ignore", "INS1", "train.py")[0] == 0
    assert typed("--strict", "--select=zero-fill", "train.py")[0] == 0
    assert typed("--strict", "--select", "missing-zero-grad", "train.py")[0] == 1
    write('[tool.instep]\nper-file-ignores = {"train.py" = ["INS101"]}\n', "pyproject.toml")
    assert typed("--strict", "train.py")[0] == 0


@pytest.mark.parametrize("name", ["json", "sarif", "github"])
def test_formats_for_programs(name, write, typed):
    write(WRONG)
    _, out, _ = typed("--output-format", name, "-q", "train.py")
    code, printed, _ = typed("--output-format", name, "--output-file=report", "-q", "train.py")
    assert (code, printed) == (0, "")
    assert Path("report").read_text() == out
    if name == "github":
        assert "::error " in out
        assert "file=train.py,line=10" in out
        return
    [run] = read["runs"] if isinstance(read := json.loads(out), dict) else [{"results": read}]
    assert {found.get("ruleId") or found["code"] for found in run["results"]} == {"INS101"}


def test_text_in_a_file(write, typed):
    write(WRONG)
    _, _, err = typed("--output-file", "report.txt", "train.py")
    report = Path("report.txt").read_text()
    assert report.startswith(LINE)
    assert report.endswith("1 error found.\n")
    assert err.endswith(f"instep: {MENDS}")
    assert err.count(LINE) == 2  # the live one, and with its lines at the end
    assert "= to do: " in err


def test_pages_and_traces_are_written_by_their_modules(write, typed, monkeypatch):
    """Held to the call: what they draw is tested where they are."""
    written = []

    def fake(name, **functions):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**functions))

    fake("instep.watching.record_of", record_of=lambda job, **said: said)
    fake("instep.reports.page", write=lambda *said: written.append(("page", *said)))
    fake("instep.reports.chrome", write=lambda *said: written.append(("trace", *said)))
    write("import os\nos.mkdir('away')\nos.chdir('away')\n" + WRONG + "sys.exit(3)\n")
    here = Path.cwd()
    code, _, _ = typed("--report", "a.html", "--chrome-trace", "b.json", "train.py", "--lr")
    os.chdir(here)
    assert code == 3
    assert {(kind, path) for kind, _, path in written} == {
        ("page", str(here / "a.html")),
        ("trace", str(here / "b.json")),
    }
    endings = [record["ending"] for _, record, _ in written]
    assert endings[:2] == ["running", "running"]
    assert endings[-2:] == ["failed", "failed"]
    last = written[-1][1]
    assert last["command"] == ("train.py", "--lr")
    assert last["error"] == "exit 3"
    assert [finding.code for finding in last["findings"]] == ["INS101"]


def test_a_page_and_a_trace(write, typed):
    write(WRONG)
    code, _, err = typed("--report=a.html", "--chrome-trace=b.json", "train.py")
    assert code == 0
    assert err.endswith(f"{SUMMARY}{FOUND}")
    assert "missing-zero-grad" in Path("a.html").read_text()
    assert json.loads(Path("b.json").read_text())["traceEvents"]


# What is run


def test_a_module(write, typed):
    write("", "package/__init__.py")
    write(WRONG + "print(__name__, __package__, sys.argv[1:])", "package/__main__.py")
    code, out, err = typed("--strict", "-m", "package", "-m", "--strict")
    assert (code, out) == (1, "__main__ package ['-m', '--strict']\n")
    assert err.startswith("package/__main__.py:10:5: error INS101")
    assert typed("-mpackage", "x")[1] == "__main__ package ['x']\n"


def test_a_script_whose_name_begins_with_a_dash(write, typed):
    write("print('run')", "-odd.py")
    assert typed("--", "-odd.py")[1] == "run\n"


def test_torch_is_not_imported_before_the_program_does(write):
    """A program may set variables first that torch reads when it is imported."""
    write("import sys\nprint('torch' in sys.modules)\n")
    assert done("train.py") == (
        0, "False\n", "instep: The program did not import torch: nothing was watched.\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "there is nothing to run."),
        (["--strict"], "there is nothing to run."),
        (["gone.py"], "'gone.py' cannot be read"),
        (["-m", "no.such"], "there is no module 'no.such'"),
        (["-m"], "argument -m: expected one argument"),
        (["--stirct", "train.py"], "Did you mean --strict?"),
        (["--epochs", "2", "train.py"], "come after it: instep watch train.py --epochs ..."),
        (["--epochs=2", "train.py"], "come after it: instep watch train.py --epochs ..."),
        (["--lr", "3", "train.py"], "unrecognized arguments: --lr.\n"),
        (["--fix", "train.py"], "It is an option of `instep check`."),
        (["exp.ipynb"], "'exp.ipynb' is a notebook, and cannot be run as a script."),
        (["exp.ipynb"], "put `with instep.watch():` around the training in a cell"),
        (["--report", "a.pdf", "train.py"], "'a.pdf' does not say what to write."),
        (["--report", "page", "train.py"], "end it in .html for the page"),
        (["--select", "nothing", "train.py"], "nothing"),
        (["--output-file", "train.py", "train.py"], "that is a source file"),
        (["--report", "no/such/page.html", "train.py"], "its folder is not there"),
        (["--chrome-trace", ".", "train.py"], "that is a folder"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(words, what, write, typed):
    write("raise SystemExit('it ran')")
    write('{"cells": [], "metadata": null}', "exp.ipynb")
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert what in err
    assert "it ran" not in err


def test_a_report_may_be_of_the_findings_alone(write, typed):
    write(WRONG)
    assert typed("--report", "found.json", "train.py")[0] == 0
    assert [each["code"] for each in json.loads(Path("found.json").read_text())] == ["INS101"]
    typed("--report", "found.txt", "--output-format=json", "train.py")
    assert Path("found.txt").read_text().endswith(f"{SUMMARY[8:]}{FOUND[:15]}")


UNFIXED = """
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for batch in DataLoader(torch.randn(48, 4), batch_size=1):
    optimizer.zero_grad()
    y = model(batch)
    y.square().mean().backward()
    optimizer.step()
    kept.append(y)
"""


def test_only_what_the_checker_mends_is_said_to_be_mended(write, typed):
    write(UNFIXED)
    _, _, err = typed("train.py")
    assert "INS605" in err
    assert "check --fix" not in err


def test_a_loop_that_the_checker_cannot_follow_is_not_said_to_be_mended(write, typed):
    write("from pathlib import Path\nexec(Path('inner.txt').read_text())\n")
    write(WRONG, "inner.txt")
    _, _, err = typed("train.py")
    assert "1 error found" in err
    assert "check --fix" not in err


def test_what_a_function_has_kept_is_told_at_the_end(write, typed):
    lines = UNFIXED.splitlines()[1:]
    write("def main():\n" + "\n".join(f"    {line}" for line in lines) + "\nmain()\n")
    code, _, err = typed("--strict", "--report", "found.json", "train.py")
    assert code == 1
    assert err.count("INS605 memory-growth") == 2
    assert err.endswith("1 warning found.\n")
    assert [each["code"] for each in json.loads(Path("found.json").read_text())] == ["INS605"]


def test_the_page_of_the_command():
    assert "instep watch" in page("watching")


# How it ends


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('bye')", 1, "bye\n"),
        ("raise KeyboardInterrupt", -2, "KeyboardInterrupt\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("loss.backward()", 1, "RuntimeError: Trying to backward through the graph a second"),
    ],
)
def test_an_end_is_the_programs_own(end, code, said, write, typed):
    write(f"{WRONG}{end}\n")
    ended, _, err = typed("--strict", "--output-file", "report", "train.py")
    assert ended == (code or 1)  # strict: the program ended well, and is wrong
    assert said in err
    assert "instep/" not in err, "a frame of ours is shown"
    assert err.endswith(f"{SUMMARY}{FOUND}")
    assert Path("report").read_text().startswith(LINE)


def test_ctrl_c_ends_a_program_by_its_signal(write):
    write("import atexit\natexit.register(print, 'bye')\nraise KeyboardInterrupt\n")
    command = [sys.executable, "train.py"]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    assert plain.returncode == -2
    assert done("--quiet", "train.py") == (plain.returncode, plain.stdout, plain.stderr)


PARSED = "import argparse\nargparse.ArgumentParser().parse_args()\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--report", "x.html"), "--report"), (("--output-file=x",), "--output-file")],
)
def test_options_of_ours_that_come_after_the_program(words, said, write, typed):
    write(PARSED)
    code, _, err = typed("train.py", *words)
    assert code == 2
    assert "error: unrecognized arguments" in err
    assert err.endswith(
        f"instep: {said} was given to the program. Options of instep come before it: "
        f"instep watch {said} ... train.py\n"
    )


def test_arguments_that_a_program_refuses_are_its_own(write, typed):
    write(PARSED)
    assert "come before" not in typed("train.py", "--rate", "3")[2]
    write("import sys\nsys.exit(2 * (sys.argv[1:] != ['--report', 'x']))\n")
    assert "come before" not in typed("train.py", "--report", "x")[2]


def test_a_script_that_does_not_parse(write, typed):
    write("x = (\n")
    code, _, err = typed("train.py")
    assert code == 1
    assert "SyntaxError" in err
    assert "Traceback" not in err


def test_a_fault_of_ours_does_not_stop_the_job(write, typed, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("a mistake of ours")

    write(WRONG + "print('done')\n")
    monkeypatch.setattr("instep.watching.job.Job.start", fail)
    code, out, err = typed("train.py")
    assert (code, out) == (0, "done\n")
    assert err.count("the watcher failed (ZeroDivisionError: a mistake of ours)") == 1


TEE = """
import sys
class Tee:
    def __init__(self, stream):
        self.stream = stream
    def write(self, text):
        self.stream.write(text)
    def flush(self):
        {flush}
sys.stdout, sys.stderr = Tee(sys.stdout), Tee(sys.stderr)
"""


@pytest.mark.parametrize("flush", ["self.stream.flush()", "raise LookupError"])
@pytest.mark.parametrize("job", ["right", "wrong"])
def test_streams_of_the_program_s_own(job, flush, write, typed):
    write(TEE.format(flush=flush) + (RIGHT if job == "right" else WRONG) + "print('end')\n")
    code, out, err = typed("--strict", "train.py")
    assert (code, out) == (int(job == "wrong"), "end\n")
    assert err.count("INS101") == (2 if job == "wrong" else 0)
    said = FOUND if job == "wrong" else "no problems found.\n"
    assert err.endswith(f"{SUMMARY}{said}")


@pytest.mark.parametrize(
    "end",
    [
        "with open('log', 'w') as sys.stdout:\n    print('logged')\n",
        "sys.stdout = None\n",
        "sys.stderr = None\n",
        "sys.stdout = sys.stderr = object()\n",
    ],
)
def test_streams_that_are_gone_at_the_end(end, write, typed):
    write(RIGHT + end)
    code, out, err = typed("--strict", "train.py")
    assert (code, out) == (0, "")
    if "stderr" not in end:
        assert err == f"{SUMMARY}no problems found.\n"


def test_standard_output_that_is_closed_is_left_to_python(write):
    write(f"{RIGHT}sys.stdout.close()\n")
    assert done("--quiet", "train.py") == (0, "", "")


@pytest.mark.parametrize(
    ("hook", "code"), [("print('mine')", 1), ("raise KeyError('mine')", 1), ("sys.exit(3)", 3)]
)
def test_hooks_of_the_program_s_own_for_its_error(hook, code, write, typed):
    write(
        f"{RIGHT}def hook(*_):\n    {hook}\nsys.excepthook = hook\nraise ValueError('the first')\n"
    )
    ended, out, err = typed("train.py")
    assert ended == code
    assert err.endswith(f"{SUMMARY}no problems found.\n")
    if hook.startswith("raise"):
        first, second = err.partition("Original exception was:\n")[::2]
        assert first.startswith("Error in sys.excepthook:\nTraceback")
        assert "KeyError: 'mine'" in first
        assert "ValueError: the first" in second
    assert (out == "mine\n") == hook.startswith("print")


def test_a_report_that_cannot_be_written(write, typed, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    write(WRONG + "print('done')\n")
    monkeypatch.setattr("instep.commands.watched.put", fail)
    code, out, err = typed("--output-file", "report", "train.py")
    assert (code, out) == (0, "done\n")
    assert "was not written (No space left on device)" in err
    assert err.endswith("1 error found.\n" + err.partition("1 error found.\n")[2])


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os._exit(9)", 9),
    ],
)
def test_a_job_that_is_killed_leaves_its_report(end, code, write):
    write(f"import os, signal\n{WRONG}{end}\nprint('not reached')\n")
    ended, out, err = done("--output-format=json", "--output-file=report.json", "train.py")
    assert (ended, out) == (code, "")
    assert err.startswith(LINE.replace(":10:", ":11:"))
    assert ("Watched" in err) == (code == -signal.SIGTERM)
    [found] = json.loads(Path("report.json").read_text())
    assert (found["code"], found["line"]) == ("INS101", 11)
    assert sorted(path.name for path in Path().iterdir()) == ["report.json", "train.py"]


def test_processes_of_the_job_do_not_report(write):
    write(
        RIGHT + "loader = torch.utils.data.DataLoader(range(4), num_workers=1)\n"
        "print(sum(int(x) for x in loader))\n"
        "import os, signal\n"
        "child = os.fork()\n"
        "if not child:\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    code, out, err = done("--output-file=report", "train.py")
    assert (code, out) == (0, "6\n-15\n")
    assert err.count("Watched") == 1


# Several processes

RANKS = """
import os
rank = os.environ["RANK"]
""" + WRONG.replace("    loss =", "    if rank == '1':\n        optimizer.zero_grad()\n    loss =")


# No rank is faster than another by chance: one waits until a file is there.
WAIT = """
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.01)
"""


def test_one_rank_tells_for_all(write):
    write(f"{RANKS}if rank == '0':{WAIT.replace(chr(10), chr(10) + '    ')}\n")
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "1"}
    words = ("--strict", "--output-file=report", "--output-format=json", "train.py")
    first, second = (
        started(*words, environ={**common, "RANK": rank, "LOCAL_RANK": rank}) for rank in "01"
    )
    assert second.communicate(timeout=60) == ("", "")
    Path("go").touch()
    _, said = first.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (1, 0)
    assert "Of 2 ranks; updates are counted on rank 0.\n" in said
    [found] = json.loads(Path("report").read_text())
    assert found["message"].endswith(" (on rank 0)")


def test_a_rank_that_comes_late_tells_by_itself(write):
    write(RIGHT, "right.py")
    write(f"{WAIT}\n{WRONG}")
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "2"}
    words = ("--strict", "--output-file=report", "--output-format=json", "--report=page.html")
    first, second = (
        started(*words, name, environ={**common, "RANK": rank, "LOCAL_RANK": rank})
        for rank, name in (("0", "right.py"), ("1", "train.py"))
    )
    _, said = first.communicate(timeout=60)
    assert first.returncode == 0
    assert said == (
        f"{SUMMARY}no problems found so far.\n"
        "instep: Of 2 ranks; updates are counted on rank 0.\n"
        "instep: Not heard to the end: rank 1.\n"
    )
    assert json.loads(Path("report").read_text()) == []
    told = Path("page.html").read_text()
    assert "No problems found so far" in told
    assert "This page was written before rank 1 had come to the end" in told
    assert "Nothing that is known of" not in told
    Path("go").touch()
    out, said = second.communicate(timeout=60)
    assert (second.returncode, out) == (1, "")
    assert "INS101 missing-zero-grad" in said
    assert said.endswith(
        "rank 1: Watched 5 updates of `optimizer`: 1 error found.\n"
        "rank 1: Of 2 ranks; updates are counted on rank 1.\n"
        "rank 1: The first rank of this machine had left, and told what it knew by then.\n"
        f"rank 1: {MENDS}"
    )
    [found] = json.loads(Path("report").read_text())
    assert found["message"].endswith(" (on rank 1)")


def test_under_torchrun(write):
    write(
        f"{RANKS}if rank == '0':\n    open('go', 'w').close()\n{WAIT}"
        "raise SystemExit(5 if rank == '1' else 0)\n"
    )
    path = os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         "-m", "instep", "watch", "--output-file=report", "train.py"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "exitcode  : 5" in ran.stderr
    assert "INS101" in Path("report").read_text()
