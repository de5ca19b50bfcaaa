import sys
from pathlib import Path

import pytest

from benchmarks.check_speed import __main__ as command
from benchmarks.check_speed import tools
from benchmarks.check_speed.tools import (
    INSTEP,
    PARSE_ALONE,
    Cost,
    Tool,
    ToolFailedError,
    lines_per_second,
    run,
    take_turns,
    times_slower,
)
from benchmarks.check_speed.tree import Tree

LOOP = (
    "for x in loader:\n    optimizer.zero_grad()\n    model(x).backward()\n    optimizer.step()\n"
)


def python(code, name="tool"):
    return Tool(name, (sys.executable, "-c", code))


def test_the_time_of_grandchildren_counts():
    work = "import time\nwhile time.process_time() < 0.3: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    assert run(python(child)).cpu > 0.29


@pytest.mark.parametrize("code", ["raise SystemExit(0)", "raise SystemExit(1)"])
def test_finding_something_is_not_failing(code):
    assert run(python(code)).cpu > 0


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit(2)", "ended with 2"),
        ("1 / 0", "ZeroDivisionError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended with -9"),
    ],
)
def test_a_checker_that_did_not_finish_has_no_time(code, said):
    with pytest.raises(ToolFailedError, match=said):
        run(python(code))


def test_the_environment_of_a_tool_reaches_it():
    code = "import os, sys; sys.exit(os.environ['RAYON_NUM_THREADS'] != '1')"
    run(Tool("ruff", (sys.executable, "-c", code), {"RAYON_NUM_THREADS": "1"}))


def test_parsing_alone_reads_every_file(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "wrong.py").write_text("def", encoding="utf-8")
    with pytest.raises(ToolFailedError, match="SyntaxError"):
        run(Tool("parse", (sys.executable, "-I", "-S", "-c", PARSE_ALONE)), str(tmp_path))


def test_everybody_runs_in_every_round_and_starts_one():
    order = []

    def runner(tool, *arguments):
        order.append((tool.name, *arguments))
        return Cost(1.0, 1.0)

    costs = take_turns([python("", "a"), python("", "b")], ["folder"], 2, runner=runner)
    assert order[:2] == [("a", "folder"), ("b", "folder")]  # to warm up
    assert order[2:] == [("a", "folder"), ("b", "folder"), ("b", "folder"), ("a", "folder")]
    assert {name: len(each) for name, each in costs.items()} == {"a": 2, "b": 2}


def test_a_compiled_build_is_measured_where_there_is_one(monkeypatch, tmp_path):
    monkeypatch.setattr(tools, "COMPILED", tmp_path / "python")
    assert not [tool for tool in tools.tools()[0] if "compiled" in tool.name]
    (tmp_path / "python").touch()
    first, second, *_ = tools.tools()[0]
    assert (first.name, second.name) == (INSTEP, "`instep check`, compiled")
    assert second.command == (str(tmp_path / "python"), *first.command[1:])


def test_arithmetic():
    ours = [Cost(1.0, 9.0), Cost(2.0, 9.0), Cost(4.0, 9.0)]
    theirs = [Cost(3.0, 9.0), Cost(2.0, 9.0), Cost(8.0, 9.0)]
    assert lines_per_second(ours, 1000) == 500
    assert times_slower(theirs, ours) == 2.0


def test_a_missing_peer_is_a_row_or_an_error(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tools, "COMPILED", tmp_path / "python")
    monkeypatch.setattr(tools.shutil, "which", lambda name, path: None)
    found, missing = tools.tools()
    names = [tool.name for tool in found]
    assert names == [INSTEP, "its start and its parsing alone", "`ast.parse` alone"]
    assert missing == ["Ruff, all rules", "TorchFix, all rules"]
    assert command.main(["--require-peers"]) == 2
    assert "a peer is missing: Ruff" in capsys.readouterr().err


def fake_tools(monkeypatch, ours="pass"):
    pair = [python(ours, INSTEP), python("pass", "other")]
    monkeypatch.setattr(command, "tools", lambda: (pair, ["gone"]))
    monkeypatch.setattr(command, "_start", lambda rounds: "it starts.")


def test_the_table(tmp_path, monkeypatch, capsys):
    (tmp_path / "train.py").write_text(LOOP, encoding="utf-8")
    fake_tools(monkeypatch)
    assert command.main(["--tree", str(tmp_path), "--rounds", "1"]) == 0
    header, _, ours, other, gone, *rest = capsys.readouterr().out.splitlines()
    assert header.count("lines/s") == 2
    assert ours.startswith(f"| {INSTEP} |")
    assert ours.count("| 1 |") == 2
    assert other.startswith("| other |")
    assert gone == "| gone | not installed |  |  |  |"
    assert "it starts." in rest
    assert rest[-1].startswith("Tree: 1 files, 4 lines; 1 files and 4 lines of them")


def test_a_large_ratio_has_no_decimals():
    costs = {INSTEP: [Cost(1.0, 1.0)], "slow": [Cost(123.4, 1.0)], "near": [Cost(1.234, 1.0)]}
    tree = Tree(Path(), 1, 1, 1000, 1000)
    assert command._row("slow", [tree], [costs]) == ["slow", "8", "123"]
    assert command._row("near", [tree], [costs]) == ["near", "810", "1.23"]


def test_a_failure_and_an_empty_tree_have_exit_codes(tmp_path, monkeypatch, capsys):
    fake_tools(monkeypatch, ours="raise SystemExit(2)")
    assert command.main(["--tree", str(tmp_path)]) == 2
    assert "no Python file" in capsys.readouterr().err
    (tmp_path / "train.py").write_text(LOOP, encoding="utf-8")
    assert command.main(["--tree", str(tmp_path)]) == 1
    assert "ended with 2" in capsys.readouterr().err


def test_start_times_are_in_milliseconds(monkeypatch):
    def turns(contestants, arguments, rounds):
        return {tool.name: [Cost(0.02, 0.03)] * rounds for tool in contestants}

    monkeypatch.setattr(command, "take_turns", turns)
    said = command._start(1)
    assert said.count("20 ms of CPU time (30 ms on the wall)") == 2
