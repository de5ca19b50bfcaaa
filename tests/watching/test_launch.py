"""A program is run as Python would run it."""

import subprocess
import sys

import pytest

from instep.errors import WatchError
from instep.watching.launch import Program, Ready, code_of, once_imported, show

ABOUT = """
import sys
names = ("__name__", "__file__", "__package__", "__doc__")
print(sys.argv[1:], sys.path[0], [globals()[name] for name in names], __spec__ is None)
own = sorted(name for name in globals() if name[:2] == "__")
print(sys.modules["__main__"].__dict__ is globals(), own)
"""
RUN = """
import sys
from instep.watching.launch import Program, Ready
Ready(Program(sys.argv[1], tuple(sys.argv[3:]), is_module=sys.argv[2] == "module")).run()
"""


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def said(*command, cwd):
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_script_sees_what_python_would_show_it(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text(ABOUT)
    expected = said("sub/train.py", "--lr", "3", "-m", cwd=tmp_path)
    seen = said("-c", RUN, "sub/train.py", "script", "--lr", "3", "-m", cwd=tmp_path)
    assert seen == expected


@pytest.mark.parametrize("path", ["../train.py", "./train.py", "sub/../train.py", ".././train.py"])
def test_a_path_is_left_as_it_was_typed(path, tmp_path):
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    for folder in (tmp_path, home):
        (folder / "train.py").write_text(ABOUT)
    assert said("-c", RUN, path, "script", cwd=home) == said(path, cwd=home)


def test_a_script_behind_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "train.py").write_text(ABOUT)
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "train.py")
    assert said("-c", RUN, "link.py", "script", cwd=tmp_path) == said("link.py", cwd=tmp_path)


@pytest.mark.parametrize("name", ["package", "package.part"])
def test_a_module_sees_what_python_would_show_it(name, tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "__main__.py").write_text(ABOUT)
    (folder / "part.py").write_text(ABOUT)
    expected = said("-m", name, "-x", cwd=tmp_path)
    assert said("-c", RUN, name, "module", "-x", cwd=tmp_path) == expected


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (Program("gone.py"), "'gone.py' cannot be read"),
        (Program("."), "'.' cannot be read"),
        (Program("a\0b"), "cannot be read"),
        (Program("no.such", is_module=True), "there is no module 'no.such'"),
        (Program(".relative", is_module=True), "there is no module '.relative'"),
        (Program("json", is_module=True), "there is no module 'json.__main__'"),
    ],
)
def test_what_cannot_be_run_is_refused(program, what):
    with pytest.raises(WatchError, match=what):
        Ready(program)


def test_exit_codes(capsys):
    assert [code_of(SystemExit(code)) for code in (None, 0, 7, True)] == [0, 0, 7, 1]
    assert code_of(SystemExit("bye")) == 1
    assert capsys.readouterr().err == "bye\n"


def test_a_traceback_is_the_users(tmp_path, capsys):
    file = tmp_path / "train.py"
    file.write_text(
        "def f():\n    1 / 0\n\ntry:\n    f()\nexcept Exception as e:\n    raise e from e\n"
    )
    with pytest.raises(ZeroDivisionError) as raised:
        Ready(Program(str(file))).run()
    raised.value.__traceback__ = raised.tb.tb_next  # without the test itself
    show(raised.value)
    shown = capsys.readouterr().err
    assert "launch.py" not in shown
    assert shown.startswith("Traceback (most recent call last):\n")
    assert 'train.py", line 2, in f' in shown


def test_a_script_that_does_not_parse(tmp_path, capsys):
    file = tmp_path / "train.py"
    file.write_text("x = (\n")
    with pytest.raises(SyntaxError) as raised:
        Ready(Program(str(file))).run()
    raised.value.__traceback__ = raised.tb.tb_next
    show(raised.value)
    shown = capsys.readouterr().err
    assert shown.startswith(f'  File "{file}", line 1\n')


@pytest.fixture
def late(tmp_path):
    (tmp_path / "late_module.py").write_text("value = 1\n")
    sys.path.insert(0, str(tmp_path))
    yield "late_module"
    sys.modules.pop("late_module", None)


def test_something_is_done_once_a_module_is_there(late):
    seen = []
    once_imported(late, lambda: seen.append(sys.modules[late].value))
    assert seen == []
    module = __import__(late)
    assert seen == [1]
    assert type(module.__loader__).__module__.startswith("_frozen_importlib")
    assert module.__spec__.loader is module.__loader__
    once_imported(late, lambda: seen.append("there already"))
    assert seen == [1, "there already"]


def test_it_can_be_taken_back(late):
    before = list(sys.meta_path)
    forget = once_imported(late, lambda: pytest.fail("it was taken back"))
    forget()
    forget()
    __import__(late)
    assert sys.meta_path == before


def test_a_module_that_is_not_there(late):
    once_imported("no_such_module", lambda: pytest.fail("it is not there"))
    with pytest.raises(ModuleNotFoundError):
        __import__("no_such_module")
