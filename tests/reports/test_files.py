import os
import stat

import pytest

from instep.reports.files import put


def test_a_file_is_written_and_replaced(tmp_path):
    target = tmp_path / "report.html"
    put(target, "one é")
    put(str(target), "two")
    assert target.read_text() == "two"
    assert list(tmp_path.iterdir()) == [target]


def test_permissions_are_those_of_any_new_file_and_stay(tmp_path):
    target, other = tmp_path / "report.html", tmp_path / "other"
    put(target, "")
    other.write_text("")
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)
    target.chmod(0o640)
    put(target, "")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path):
    target, link = tmp_path / "report.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    put(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        put(target, "\ud800")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        put(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "no" / "report.html", "")


def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    put(pipe, "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
