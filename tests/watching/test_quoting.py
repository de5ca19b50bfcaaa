from instep.rules.finding import Finding, Related, Severity
from instep.trace import Place
from instep.watching.quoting import Quoting


def found(path, line, code="INS101", name="missing-zero-grad", related=()):
    return Finding(code, name, Severity.ERROR, Place(str(path), line), "m", related=related)


def test_comments_at_the_users_lines(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(
        "loss.backward()  # instep: ignore[missing-zero-grad] on purpose\n"
        "loss.backward()  # noqa: INS101\n"
        "loss.backward()  # instep: ignore[zero-fill]\n"
        "scaler.scale(  # instep: ignore\n"
        "    loss\n"
        ").backward()\n"
    )
    quoting = Quoting(str(tmp_path))
    silenced = [line for line in range(1, 7) if quoting.is_silenced(found(file, line))]
    assert silenced == [1, 2, 4, 5, 6]


def test_a_file_that_asks_to_be_skipped(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("# instep: skip-file\nloss.backward()\n")
    assert Quoting(str(tmp_path)).is_silenced(found(file, 2))


def test_what_cannot_be_read_silences_nothing(tmp_path):
    assert not Quoting(str(tmp_path)).is_silenced(found(tmp_path / "gone.py", 1))
    assert not Quoting(str(tmp_path)).is_silenced(found("<string>", 1))
    assert Quoting(str(tmp_path))("<string>") is None


def test_a_cell_with_a_magic_is_silenced_on_its_own_lines(tmp_path):
    file = tmp_path / "cell.py"
    file.write_text("%time\nloss.backward()  # noqa: INS101\n")
    assert Quoting(str(tmp_path)).is_silenced(found(file, 2))


def test_paths_are_those_that_a_reader_would_type(tmp_path):
    file = tmp_path / "sub" / "train.py"
    file.parent.mkdir()
    file.write_text("x = 1\n")
    other = Place("/elsewhere/helper.py", 3)
    finding = found(file, 1, related=(Related(other, "here"), Related(Place(str(file), 2), "h")))
    quoting = Quoting(str(tmp_path))
    shown = quoting.shown(finding)
    assert shown.place.path == "sub/train.py"
    assert [each.place.path for each in shown.related] == ["/elsewhere/helper.py", "sub/train.py"]
    assert quoting(shown.place.path) == ["x = 1"]
