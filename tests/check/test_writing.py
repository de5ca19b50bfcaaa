import stat

import pytest

from instep.check.writing import diff, write_file
from instep.errors import CheckError


def test_the_mode_and_the_link_stay(tmp_path):
    real = tmp_path / "real.py"
    real.write_bytes(b"old")
    real.chmod(0o754)
    link = tmp_path / "link.py"
    link.symlink_to(real)
    write_file(str(link), b"old", b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o754
    assert sorted(tmp_path.iterdir()) == [link, real]


def test_a_file_that_somebody_has_changed_is_left_alone(tmp_path):
    file = tmp_path / "a.py"
    file.write_bytes(b"newer")
    with pytest.raises(CheckError, match="changed since it was read"):
        write_file(str(file), b"old", b"new")
    assert file.read_bytes() == b"newer"


def test_what_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(CheckError, match="cannot be written"):
        write_file(str(tmp_path / "none.py"), b"", b"new")
    file = tmp_path / "a.py"
    file.write_bytes(b"old")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fdopen", full)
    with pytest.raises(CheckError, match="No space left"):
        write_file(str(file), b"old", b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_diffs_of_all_kinds_of_text():
    assert diff("a.py", b"x", b"y").endswith(
        "-x\n\\ No newline at end of file\n+y\n\\ No newline at end of file\n"
    )
    assert "-x\r\n+y\r\n" in diff("a.py", b"a\r\nx\r\n", b"a\r\ny\r\n")
    latin = "# coding: latin-1\n'é'\n".encode("latin-1")
    assert "-'é'" in diff("a.py", latin, b"# coding: latin-1\n")
    assert "-\ufffd" in diff("a.py", b"\xff\n", b"")
    assert diff("a.py", b"x\n", b"x\n") == ""
