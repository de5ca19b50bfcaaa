"""`instep check` in a repository of somebody who means harm: it is read, and nothing of it runs."""

import json
import shutil

import pytest

from tests.reports.kit import raw_controls
from tests.security.guard import Guard
from tests.security.tree import MARK, NAMES, SHADOWS, Payload, plant, poison

FORMATS = ("text", "json", "sarif", "github")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    tree = tmp_path_factory.mktemp("tree")
    plant(tree)
    return tree


@pytest.fixture
def guard(planted, tmp_path):
    tree = tmp_path / "repository"
    shutil.copytree(planted, tree, symlinks=True)
    (tree / "loop").unlink()
    (tree / "loop").symlink_to(tree, target_is_directory=True)
    (tmp_path / "aside").mkdir()
    return Guard(tree, tmp_path / "aside")


def harmless(guard):
    """Say that nothing of the tree was run and nobody was called; return what was written."""
    assert guard.done() == []
    assert not (guard.tree / MARK).exists()
    return guard.written()


def test_the_guard_has_teeth(guard):
    """It notices an import, a call of the shell, a socket and a pickle."""
    (guard.tree / "payload.pickle").write_bytes(__import__("pickle").dumps(Payload()))
    code = (
        "import os, pickle, socket, instep_plugin\n"
        "os.system('true')\n"
        "socket.socket()\n"
        "pickle.load(open('payload.pickle', 'rb'))\n"
    )
    guard.run("-c", code)
    events = {event for event, _ in guard.done()}
    assert {"exec", "os.system", "socket.__new__", "pickle.find_class"} <= events
    assert MARK in guard.written()


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_is_run(guard, name):
    done = guard.instep("check", f"--output-format={name}", ".")
    assert done.returncode == 1, done.stderr
    assert "INS101" in done.stdout
    assert all(path.startswith(".instep_cache/") for path in harmless(guard))
    assert raw_controls(done.stdout + done.stderr) <= {"\n"}
    lines = done.stdout.split("\n")[:-1]
    assert name == "github" or not any(line.startswith("::") for line in lines)
    if name == "github":
        assert all(
            line.startswith(("::error file=", "::warning file=", "::notice file="))
            for line in lines
        )
        assert not any("::error::owned" in line.split("::")[0] for line in lines)
    elif name != "text":
        said = json.loads(done.stdout)
        assert json.dumps(said).count("INS101") >= len(NAMES)


def test_several_processes(guard):
    (guard.tree / "large.py").write_text(
        "# filler\n" * 40_000 + (guard.tree / "train.py").read_text()
    )
    done = guard.instep("check", "--jobs=2", ".")
    assert done.returncode == 1, done.stderr
    passed = {said.strip('"') for event, said in guard.done() if event == "pickle.find_class"}
    # What our own processes hand each other, through pipes that nobody else has an end of.
    assert passed
    assert all(said.startswith(("('concurrent.", "('instep.")) for said in passed)
    assert {event for event, _ in guard.done()} == {"pickle.find_class"}
    assert not (guard.tree / MARK).exists()


def test_what_is_mended_is_not_run(guard):
    shown = guard.instep("check", "--diff", ".")
    assert "+++ a\\nb.py" in shown.stdout  # a name has one line
    assert all(path.startswith(".instep_cache/") for path in harmless(guard))
    done = guard.instep("check", "--fix", ".")
    assert done.returncode in {0, 1, 2}, done.stderr
    harmless(guard)
    assert "optimizer.zero_grad()" in (guard.tree / NAMES[0]).read_text()


def test_a_cache_is_data(guard):
    assert guard.instep("check", ".").returncode == 1
    assert poison(guard.tree / ".instep_cache") > len(NAMES)
    again = guard.instep("check", ".")
    assert again.returncode == 1, again.stderr
    harmless(guard)


def test_a_cache_that_leads_elsewhere(guard, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (guard.tree / ".instep_cache").symlink_to(elsewhere, target_is_directory=True)
    assert guard.instep("check", ".").returncode == 1
    assert harmless(guard) == set()
    assert list(elsewhere.iterdir()) == []


def test_a_link_out_of_the_repository_is_not_mended(guard, tmp_path):
    outside = tmp_path / "mine.py"
    outside.write_bytes(before := (guard.tree / "train.py").read_bytes())
    (guard.tree / "sub" / "link.py").symlink_to(outside)
    done = guard.instep("check", "--fix", ".")
    assert "sub/link.py: it is a link to" in done.stderr
    assert outside.read_bytes() == before
    assert guard.instep("check", "--fix", "sub/link.py").returncode == 0  # it was named
    assert outside.read_bytes() != before


@pytest.mark.parametrize(
    "settings",
    [
        'baseline = "/dev/zero"',
        r'baseline = "missing\n::error::\u001b[2J"',
        r'select = ["\n::error::\u001b[2J"]',
        r'"\n::error::\u001b[2J" = 1',
    ],
)
def test_settings_are_data(guard, settings):
    (guard.tree / "pyproject.toml").write_text(f"[tool.instep]\n{settings}\n")
    done = guard.instep("check", ".")
    assert done.returncode == 2
    assert raw_controls(done.stderr) <= {"\n"}
    assert "\n::" not in done.stderr
    harmless(guard)


def test_modules_of_the_current_folder_are_not_imported(guard):
    """They would be, by `python -m`, were the current folder still where imports begin."""
    assert {"ast", "json", "tomllib", "typing"} <= set(SHADOWS)
    for words in (("check", "train.py"), ("rules",), ("explain", "items"), ("check", "--no-such")):
        guard.instep(*words)
        harmless(guard)
