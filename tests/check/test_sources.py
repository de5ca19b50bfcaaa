import io
import os
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check.problems import Diagnostic
from instep.check.sources import Unit, kind_of, read_units, units_from_bytes


@pytest.fixture
def write(tmp_path):
    def to(name, data):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return to


def test_a_python_file(write):
    path = write("a.py", b"\xef\xbb\xbfx = 1\r\ny = 2\r\n")
    [unit] = read_units(path, shown="src/a.py")
    assert (unit.path, unit.kind, unit.text) == ("src/a.py", "python", "x = 1\ny = 2\n")
    assert unit.locator.place(2, 0).path == "src/a.py"
    assert unit.tree.body[1].lineno == 2
    path.write_bytes(unit.to_bytes(unit.write_back("x = 1\nz = 3\n")))
    assert path.read_bytes() == b"\xef\xbb\xbfx = 1\r\nz = 3\r\n"


def test_kinds():
    names = ["a.py", "a.PY", "a.pyw", "script", "a.ipynb", "a.MD", "a.rst", "a.txt", "-"]
    assert [kind_of(name)[0] for name in names] == list("ppppnmmms")


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x = 1\r\n")))
    [unit] = read_units("-", shown="<stdin>")
    assert (unit.kind, unit.path, unit.write_back("y\n")) == ("stdin", "<stdin>", "y\r\n")


@pytest.mark.parametrize(
    ("name", "data", "kind", "line"),
    [
        ("a.py", b"x = 1\n\xff", "undecodable", 2),
        ("a.py", b"# coding: nope\n", "undecodable", 1),
        ("a.py", b"x = 1\n\ny = \0", "null-bytes", 3),
        ("a.py", b"x = 1\r\ry = (\r", "syntax-error", 3),
        ("a.py", b"x = 1\nprint 'x'\n", "python-2", 2),
        ("a.py", b"\n" + b"-" * 9999 + b"1", "too-deep", 1),
        ("a.py", b"x = backward\n" * 100_000, "too-large", 1),
        ("a.py", b"#" * (9 << 20), "too-large", 1),
        ("a.ipynb", b"{}", "bad-notebook", 1),
        ("a.ipynb", b"{\n\xff}", "undecodable", 2),
        ("a.md", b"```python\n\xe9\n```", "undecodable", 2),
    ],
)
def test_one_diagnostic_and_no_traceback(write, name, data, kind, line):
    start = time.perf_counter()
    diagnostic = read_units(write(name, data))
    assert isinstance(diagnostic, Diagnostic)
    assert (diagnostic.kind, diagnostic.place.line) == (kind, line)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b"\xff\xfe data"),
        ("a.txt", b"x" * (5 << 20)),
        ("a.md", b"```python\nfor each x:\n```\n"),
        ("a.md", b""),
    ],
)
def test_text_files_are_passed_over_in_silence(write, name, data):
    assert read_units(write(name, data)) == []


def test_what_cannot_be_read(tmp_path):
    assert read_units(tmp_path).kind == "unreadable"
    assert read_units(tmp_path / "none.py").kind == "unreadable"
    assert read_units("a\0b.py").kind == "unreadable"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    assert read_units(tmp_path / "pipe.py").kind == "unreadable"


def test_what_is_not_wanted_is_not_parsed():
    assert units_from_bytes(b"print 'x'", "a.py", wanted=lambda text: "backward" in text) == []
    assert len(units_from_bytes(b"backward", "a.py", wanted=lambda text: "backward" in text)) == 1
    refused = units_from_bytes(b"\xff", "a.py", wanted=lambda text: False)
    assert refused.kind == "undecodable"


def test_nothing_is_run(write, tmp_path):
    mark = tmp_path / "ran"
    path = write("a.py", f"open({str(mark)!r}, 'w')\n")
    assert len(read_units(path)) == 1
    assert not mark.exists()


@given(st.binary(max_size=80), st.sampled_from(["a.py", "a.ipynb", "a.md", "-"]))
def test_no_bytes_raise(data, name):
    units = units_from_bytes(data, name)
    assert isinstance(units, Diagnostic) or all(isinstance(unit, Unit) for unit in units)
    for unit in () if isinstance(units, Diagnostic) else units:
        assert unit.to_bytes(unit.write_back(unit.text)) == data
