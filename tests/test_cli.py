"""The command line as it is typed. The judge is a fake; what is around it is real."""

import argparse
import io
import json
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import instep
from instep import cli
from instep.check import tools
from instep.check.execute import machine
from instep.check.options import BESIDE
from instep.cli import main
from instep.commands import parser
from instep.explain import ALSO, page, topics
from instep.reports import FORMATS
from instep.rules.registry import names, rulebook, watched
from instep.symptoms import SYMPTOMS
from tests.check import fakes

LOOP = "for x in y:\n    loss.backward()\n    bad.step()\n"
ROOT = Path(__file__).parent.parent


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tools, "load", fakes.load)
    for name in ("NO_COLOR", "FORCE_COLOR", "INSTEP_CACHE_DIR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    fakes.judged.clear()
    fakes.followed.clear()
    fakes.elsewhere.clear()

    def make(**contents):
        for name, content in contents.items():
            path = tmp_path / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return make


@pytest.fixture
def typed(capsys, monkeypatch):
    def run(*words, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["check", *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_findings_a_summary_and_exit_codes(tree, typed):
    tree(a_py=LOOP, b_py="x = 1\n")
    code, out, err = typed()
    assert (code, err) == (1, "")
    assert "a.py:3:5: error INS302 clip-after-step: it is bad." in out
    assert "3 |     bad.step()" in out
    assert out.endswith("\nFound 1 error in 1 of 2 files.\n1 fixable with --fix.\n")
    assert typed("b.py") == (0, "No problems found in 1 file.\n", "")
    assert typed("-q", "b.py") == (0, "", "")
    assert typed("--exclude", "*.py") == (0, "No files to check.\n", "")


@pytest.mark.parametrize(
    ("words", "code"),
    [([], 1), (["--severity", "error"], 0), (["--severity=info"], 1), (["--ignore", "INS303"], 0)],
)
def test_the_severity_decides(tree, typed, words, code):
    tree(a_py=LOOP.replace("bad", "odd"))
    assert typed(*words)[0] == code


def test_select_and_ignore(tree, typed):
    tree(a_py=LOOP + "odd\n")
    assert "INS303" not in typed("--select", "clip-after-step")[1]
    assert "INS302" not in typed("--select", "INS3", "--ignore", "clip-after-step,INS101")[1]
    code, out, err = typed("--select", "clip-aftr-step")
    assert (code, out) == (2, "")
    assert "Did you mean 'clip-after-step'?" in err


def test_json(tree, typed):
    tree(a_py=LOOP, bad_py="backward(")
    code, out, err = typed("--output-format", "json")
    first, second = json.loads(out)
    assert (code, err) == (1, "")
    wanted = {"code", "name", "severity", "path", "line", "column", "message", "fix", "related"}
    assert wanted <= set(first)
    assert set(first) == set(second)
    assert (first["path"], first["line"], first["column"]) == ("a.py", 3, 5)
    assert first["fix"]["edits"][0]["text"] == "good"
    assert (second["code"], second["name"], second["fix"]) == ("INS000", "not-checked", None)
    assert json.loads(typed("--output-format", "json", "--select", "INS101", "a.py")[1]) == []


def test_sarif_and_github(tree, typed):
    tree(a_py=LOOP)
    run = json.loads(typed("--output-format", "sarif")[1])["runs"][0]
    described = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert described == set(rulebook()) - watched()  # what the checker can find
    assert [result["ruleId"] for result in run["results"]] == ["INS302"]
    assert typed("--output-format", "github")[1].startswith("::error file=a.py,line=3,col=5,")


def test_an_output_file(tree, typed):
    root = tree(a_py=LOOP)
    code, out, err = typed("--output-file", "r.json", "--output-format", "json")
    assert (code, out, err) == (1, "", "")
    assert len(json.loads((root / "r.json").read_text())) == 1
    assert typed("--output-file", "r.txt", "--color", "always")[:2] == (1, "")
    assert "\x1b" not in (root / "r.txt").read_text()
    code, out, err = typed("--output-file", "none/r.txt")
    assert (code, out) == (2, "")
    assert "cannot be written" in err


def test_statistics(tree, typed):
    tree(a_py=LOOP + "odd = bad\n", b_py="backward(")
    out = typed("--statistics", "-q")[1]
    rows = out.split("\n\n")[0].splitlines()
    assert rows[0] == "2  INS302 clip-after-step      2 fixable"
    assert [row.split()[1] for row in rows] == ["INS302", "INS000", "INS303"]
    rows = json.loads(typed("--statistics", "--output-format", "json")[1])
    assert rows[0] == {"count": 2, "code": "INS302", "name": "clip-after-step", "fixable": 2}
    assert typed("--statistics", "--output-format", "sarif")[0] == 2


def test_verbose_says_what_was_not_judged(tree, typed):
    silent = LOOP.replace("step()", "step()  # instep: ignore")
    tree(a_py=LOOP + "# unknown\n", b_py=silent)
    out = typed()[1]
    assert out.endswith("1 loop was not judged; --verbose says why.\n")
    out = typed("--verbose")[1]
    assert "a.py:4: not judged: who knows\n" in out
    assert "Followed 2 ways through training code; 1 could not be judged." in out
    assert "Comments silence 1 finding." in out
    code, out, err = typed("-v", "--output-format", "json")
    assert len(json.loads(out)) == 1
    assert "not judged: who knows" in err


def test_diagnostics_are_four_lines_and_the_run_goes_on(tree, typed):
    tree(a_py=LOOP, b_py=b"backward = '\xff'\n", c_py="print 'backward'\n")
    code, out, err = typed()
    assert code == 1
    assert "b.py:1: byte 0xff is not utf-8.\n  why:" in out
    assert "c.py:1: it is written in Python 2.\n  why:" in out
    assert "Found 1 error in 1 file.\n1 fixable with --fix.\n2 files were not checked.\n" in out
    assert typed("b.py")[0] == 2
    assert typed("b.py", "a.py", "--ignore", "INS3")[0] == 1
    assert typed("b.py", "a.py", "--ignore", "INS3", "--severity", "error")[0] == 0
    assert typed("b.py", "a.py", "--ignore", "INS3,not-checked")[0] == 0
    assert typed("b.py", "a.py", "--output-format", "github", "--select", "INS1")[1].startswith(
        "::warning file=b.py,line=1"
    )


def test_colours(tree, typed):
    tree(a_py=LOOP)
    assert "\x1b[" not in typed()[1]
    assert "\x1b[1;31merror" in typed("--color", "always")[1]
    assert "\x1b[" not in typed("--color", "never")[1]


def test_fix(tree, typed):
    root = tree(a_py=LOOP, b_py=LOOP.replace("bad", "odd"))
    code, out, err = typed("--fix")
    assert code == 1
    assert (root / "a.py").read_text() == LOOP.replace("bad", "good")
    assert (
        "Fixed 1 problem.\nFound 1 warning in 1 of 2 files.\n1 fixable with --fix --unsafe-fixes."
        in out
    )
    assert typed("--fix", "--unsafe-fixes")[0] == 0
    assert (root / "b.py").read_text() == LOOP.replace("bad", "good")
    stamp = (root / "b.py").stat().st_mtime_ns
    assert typed("--fix", "--unsafe-fixes") == (0, "No problems found in 2 files.\n", "")
    assert (root / "b.py").stat().st_mtime_ns == stamp


def test_diff_changes_nothing(tree, typed):
    root = tree(a_py=LOOP)
    code, out, err = typed("--diff")
    assert code == 1
    assert "--- a.py\n+++ a.py\n" in out
    assert "-    bad.step()\n+    good.step()\n" in out
    assert err == "--fix would mend 1 problem in 1 file.\n"
    assert typed("--diff", "--fix")[1] == out
    assert (root / "a.py").read_text() == LOOP
    tree(a_py=LOOP.replace("bad", "odd"), b_py="backward(")
    code, out, err = typed("--diff")
    assert (code, out) == (1, "")
    assert err.startswith("Nothing to fix.\n1 would remain.\nb.py:1:")
    assert typed("--diff", "--ignore", "INS303", "a.py") == (0, "", "Nothing to fix.\n")


def test_a_file_that_cannot_be_written_does_not_stop_the_others(tree, typed, monkeypatch):
    from instep.check import writing

    really = writing.write_file

    def write_file(path, before, after):
        if path == "a.py":
            raise writing._error("a.py: no.", "f.")
        really(path, before, after)

    root = tree(a_py=LOOP, b_py=LOOP)
    monkeypatch.setattr(writing, "write_file", write_file)
    code, out, err = typed("--fix")
    assert code == 2
    assert "instep: a.py: no.\n  why:" in err
    assert "good" in (root / "b.py").read_text()


def test_standard_input(tree, capsysbinary, monkeypatch):
    def typed(*words, stdin):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["check", *words])
        shown = capsysbinary.readouterr()
        return code, shown.out, shown.err

    tree()
    code, out, err = typed("-", stdin=LOOP.encode())
    assert code == 1
    assert out.startswith(b"-:3:5: error")
    assert b"3 |     bad.step()" in out
    code, out, err = typed("-", "--stdin-filename", "src/a.py", stdin=LOOP.encode())
    assert out.startswith(b"src/a.py:3:5: error")
    crlf = LOOP.replace("\n", "\r\n").encode()
    code, out, err = typed("--fix", "-", stdin=crlf)
    assert (code, out) == (0, crlf.replace(b"bad", b"good"))
    assert err.startswith(b"Fixed 1 problem.")
    clean = b"x = 1\r\n"
    assert typed("--fix", "-", "-q", stdin=clean) == (0, clean, b"")
    code, out, err = typed("--diff", "-", stdin=LOOP.encode())
    assert b"+    good.step()" in out
    assert not list(Path.cwd().glob("*.py"))


def test_standard_input_that_is_closed(tree, typed, monkeypatch):
    tree()
    monkeypatch.setattr(sys, "stdin", None)
    code, out, err = typed("-")
    assert (code, out) == (2, "")
    assert "standard input cannot be read" in err


def test_a_baseline(tree, typed):
    root = tree(a_py=LOOP)
    code, out, err = typed("--write-baseline", "b.json")
    assert code == 0
    assert out.endswith("Wrote 1 to b.json.\n")
    assert typed("--baseline", "b.json") == (
        0,
        "No problems found in 1 file.\n1 known from the baseline.\n",
        "",
    )
    (root / "pyproject.toml").write_text('[tool.instep]\nbaseline = "b.json"\n')
    assert typed("--fix")[0] == 0
    assert (root / "a.py").read_text() == LOOP
    tree(a_py=LOOP.replace("bad.", "bad .") + "    bad()\n")
    code, out, err = typed()
    assert code == 1
    assert "1 in the baseline no longer found;" in out
    assert typed("--baseline", "none.json")[0] == 2
    assert typed("--write-baseline", "c.json")[0] == 0
    assert typed("--write-baseline", "c.json", "--diff")[0] == 2


def test_the_cache(tree, typed):
    root = tree(a_py=LOOP)
    first = typed()
    assert (root / ".instep_cache" / ".gitignore").exists()
    assert typed() == first
    assert fakes.judged == ["a.py"]
    typed("--no-cache")
    assert len(fakes.judged) == 2
    typed("--cache-dir", "c")
    assert (root / "c").is_dir()


def test_where_the_cache_is(tree, typed, monkeypatch):
    root = tree(sub__a_py=LOOP, pyproject_toml="[tool.instep]\n")
    monkeypatch.chdir(root / "sub")
    typed()
    assert (root / ".instep_cache").is_dir()
    monkeypatch.setenv("INSTEP_CACHE_DIR", str(root / "d"))
    typed()
    assert (root / "d").is_dir()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--selct", "x"], "unrecognized arguments: --selct. Did you mean --select?"),
        (["--fi"], "unrecognized arguments: --fi. Did you mean --fix?"),
        (["--strict"], "unrecognized arguments: --strict. It is an option of `instep watch`."),
        (["-x"], "unrecognized arguments: -x."),
        (["--color", "red"], "invalid choice: 'red'"),
        (["--output-format", "xml"], "invalid choice: 'xml'"),
        (["--jobs", "0"], "at least one process"),
        (["--jobs", "x"], "invalid int value: 'x'"),
        (["--severity", "eror"], "Did you mean 'error'?"),
        (["--select", ""], "no rule is named"),
        (["none.py"], "there is no 'none.py'"),
        ([""], "a path is empty"),
        (["--stdin-filename", "a.py"], "standard input is not among the paths"),
        (["--config", "none.toml"], "there is no 'none.toml'"),
        (["--config", "bad.toml"], "cannot be read"),
        (["--baseline", "bad.toml"], "it is not JSON"),
        (["\udc80.py"], "there is no"),
        (["a\0b"], "there is no"),
    ],
)
def test_bad_input_is_four_lines_and_exit_2(tree, typed, words, what):
    tree(bad_toml="= 1", a_py=LOOP)
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert err.startswith("instep: ")
    assert what in err
    lines = err.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["why:", "fix:", "more:"]
    assert lines[3].split()[-1] in topics()


def test_no_command_or_a_wrong_one(capsys):
    assert main([]) == 2
    help_, complaint = capsys.readouterr()
    assert "read training loops" in help_
    assert complaint == ""
    assert main(["chek"]) == 2
    assert "invalid choice: 'chek'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    is_compiled = not machine.__file__.endswith(".py")
    said = f"instep {instep.__version__}{' (compiled)' if is_compiled else ''}\n"
    assert capsys.readouterr().out == said


def test_a_compiled_executor_is_said(monkeypatch, tmp_path, capsys):
    (tmp_path / "check/execute").mkdir(parents=True)
    (tmp_path / f"check/execute/machine{EXTENSION_SUFFIXES[0]}").touch()
    (tmp_path / "commands").mkdir()
    monkeypatch.setattr(parser, "__file__", str(tmp_path / "commands/parser.py"))
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"instep {instep.__version__} (compiled)\n"


def test_a_folder_that_may_not_be_read(tree, typed, monkeypatch):
    tree(sub__a_py=LOOP)
    monkeypatch.setattr(os, "access", lambda path, _: path != "sub")
    code, out, err = typed("sub")
    assert (code, out) == (2, "")
    assert err.startswith("instep: 'sub' may not be read.\n  why:")


def test_settings_that_are_wrong(tree, typed):
    tree(pyproject_toml="[tool.instep]\nselct = []\n")
    code, out, err = typed()
    assert (code, out) == (2, "")
    assert "Did you mean 'select'?" in err


def test_interrupted_and_cut_off(monkeypatch):
    from instep.commands import rules

    def stopped(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(rules, "run", stopped)
    assert main(["rules"]) == 130


def test_a_closed_pipe_is_quiet():
    code = "import sys; from instep.cli import main; sys.exit(main(['explain', 'porting']))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (cli.PIPE_CLOSED, b"")


POOL = """
import os, signal, sys
from instep.check import tools
from instep.cli import main
from instep.trace.plain import replace
from tests.check import fakes

def load():
    made = fakes.load()
    def judge(unit):
        try:
            os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return made.judge(unit)
        os.kill(os.getppid(), signal.SIGINT)  # the first file that is judged is one too many
        return made.judge(unit)
    return replace(made, judge=judge) if {mark!r} else made

# Whoever runs the tests in the background of a shell has handed on that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
tools.load = load
sys.exit(main(["check", "--jobs", "{jobs}", "--no-cache", {folder!r}]))
"""


def pooled(folder, *, jobs, mark="", **environ):
    code = POOL.format(folder=str(folder), jobs=jobs, mark=str(mark))
    return subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        cwd=ROOT,
        env=os.environ | environ,
        capture_output=True,
        text=True,
    )


def test_several_processes_say_what_one_says(tmp_path):
    for number in range(12):
        (tmp_path / f"{number}.py").write_text(LOOP + "#" * 10_000)
    several, one = (pooled(tmp_path, jobs=jobs) for jobs in (2, 1))
    assert (several.stdout, several.stderr) == (one.stdout, "")
    assert "Found 12 errors in 12 files." in one.stdout


def test_ctrl_c_while_processes_work(tmp_path):
    for number in range(100):
        (tmp_path / f"{number}.py").write_text(LOOP + "#" * 10_000)
    done = pooled(tmp_path, jobs=2, mark=tmp_path / "mark")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_terminal_that_lacks_letters(tmp_path):
    (tmp_path / "a.py").write_text("x = '損'\nbackward(\n", encoding="utf-8")
    done = pooled(tmp_path, jobs=1, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (2, "")


def test_help_comes_without_the_checker():
    code = (
        "import sys; from instep.cli import main\n"
        "try: main(['check', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'ast', 'json', 'tomllib', 'multiprocessing', 'instep.rules', 'instep.trace', "
        "'instep.check', 'instep.reports', 'difflib', 'pathlib'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        check=False,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_formats_of_help_are_those_there_are():
    assert tuple(FORMATS) == parser._FORMATS


def test_every_option_is_described(capsys):
    known = parser._known(parser.build())
    assert {"--select", "--symptom", "--version"} <= set(known)
    for action in parser.build()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                assert all(
                    a.help for a in inner._actions if "--output-format" not in a.option_strings
                )


def shown(capsys, *words):
    code = main([*words])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("topic", topics())
def test_pages_are_shown(topic, capsys):
    assert shown(capsys, "explain", topic) == (0, page(topic), "")
    assert page(topic).startswith("# ")


@pytest.mark.parametrize("code", rulebook())
def test_rule_pages_have_their_examples(code, capsys):
    rule = rulebook()[code]
    done, out, err = shown(capsys, "explain", code)
    assert (done, err) == (0, "")
    assert out.startswith(f"# {code} {rule.NAME}\n\n")
    assert f"## Wrong\n\n```python\n{rule.BAD.strip()}\n```\n" in out
    assert f"## Right\n\n```python\n{rule.GOOD.strip()}\n```\n" in out
    assert shown(capsys, "explain", rule.NAME.upper())[1] == out
    assert shown(capsys, "explain", code.lower())[1] == out


@pytest.mark.parametrize(("code", "name"), BESIDE.items())
def test_what_is_no_rule_has_a_page_too(code, name, capsys):
    assert shown(capsys, "explain", code) == shown(capsys, "explain", name) == (0, page(name), "")


@pytest.mark.parametrize("word", [*ALSO, "RandomPatches", "Micro", "GroupNorm"])
def test_explain_knows_words_that_are_no_page(capsys, word):
    topic = ALSO[word.lower()]
    assert topic in topics()
    assert word.lower() not in {*topics(), *names().values()}
    assert shown(capsys, "explain", word) == (0, page(topic), "")
    assert word.lower() in page(topic).lower()


def test_explain_lists_what_a_part_of_a_name_means(capsys):
    code, out, err = shown(capsys, "explain", "INS3")
    assert (code, err) == (0, "")
    rules = [code for code in names() if code.startswith("INS3")]
    assert [line.split()[0] for line in out.splitlines()] == rules
    named = {line.split("  ")[0] for line in shown(capsys, "explain", "window")[1].splitlines()}
    assert {"window-size", "empty-window", "INS202 leftover-window"} <= named


def test_explain_lists_and_guesses(capsys):
    pages, rules = shown(capsys, "explain")[1].split("\n\n")
    assert [line.split()[0] for line in pages.splitlines()] == topics()
    assert [line.split()[0] for line in rules.splitlines()] == list(names().values())
    assert "what to delete" in pages
    code, out, err = shown(capsys, "explain", "itmes")
    assert (code, out) == (2, "")
    assert "Did you mean 'items'?" in err
    assert "Did you mean 'clip-after-step'?" in shown(capsys, "explain", "clip_after_step")[2]
    assert shown(capsys, "explain", "qqqq")[0] == 2
    assert shown(capsys, "explain", " ")[0] == 2
    done = subprocess.run(
        [sys.executable, "-m", "instep", "explain", "loss"], capture_output=True, check=True
    )
    assert done.stdout.startswith(b"# What a loss must be")


def test_symptoms(capsys):
    code, out, err = shown(capsys, "explain", "--symptom", "gradients explode")
    assert (code, err) == (0, "")
    assert out.startswith("gradients explode\n")
    assert "  INS302 clip-after-step\n      The clip comes when" in out
    code, out, err = shown(capsys, "explain", "--symptom", "cold feet")
    assert (code, out.splitlines()) == (2, [symptom.name for symptom in SYMPTOMS])
    assert err.startswith("instep: no symptom is known that reads like 'cold feet'.\n  why:")


def test_the_list_of_rules(capsys):
    code, out, err = shown(capsys, "rules")
    assert [line.split()[:2] for line in out.splitlines()] == [[*pair] for pair in names().items()]
    rows = json.loads(shown(capsys, "rules", "--output-format", "json")[1])
    assert [(row["code"], row["name"]) for row in rows] == list(names().items())
    assert all(row["severity"] in {"info", "warning", "error"} for row in rows)
    alone = {row["code"] for row in rows if row["seen_by"] == ["watch"]}
    assert alone == watched()
    assert {line.split()[0] for line in out.splitlines() if "  watch  " in line} == watched()
    assert all(row["seen_by"] == ["check", "watch"] for row in rows if row["code"] not in alone)


def test_rules_that_only_a_running_job_shows_may_be_named(tree, typed):
    tree(a_py="f()  # instep: ignore[nonfinite-step]\ng()  # noqa: INS605\n")
    assert typed("--select", "INS505,memory-growth,INS001", "a.py")[0] == 0
    assert typed("--ignore", "ranks-disagree", "a.py")[0] == 0
    assert json.loads(typed("--output-format", "json", "a.py")[1]) == []


def test_the_hooks_call_what_there_is():
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    entries = [line.partition("entry: ")[2] for line in text.splitlines() if "entry: " in line]
    assert entries == ["instep check", "instep check --fix"]
    for entry in entries:
        parser.build().parse_args(entry.split()[1:])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [([], 2, "usage: instep"), (["rules"], 0, "INS101"), (["nothing"], 2, "invalid choice")],
)
def test_what_is_said_is_written_before_the_process_ends(arguments, code, said):
    command = [sys.executable, "-m", "instep", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
