from pathlib import Path

import pytest

from instep.check.config import Config
from instep.check.options import Settings, configure
from instep.errors import CheckError
from instep.rules import Severity

RULES = {"INS101": "missing-zero-grad", "INS201": "unscaled-accumulation", "INS602": "zero-fill"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.instep]\nselect = ["INS1", "zero-fill"]\nignore = ["zero-fill"]\nseverity = "info"\n'
    )
    return tmp_path


def codes(config):
    return Settings(config, RULES).codes_for("a.py")


def test_the_project_and_the_command_line(project):
    assert codes(configure(["a", "b"], RULES)) == {"INS101"}
    assert configure(["a"], RULES).severity is Severity.INFO
    assert codes(configure(["a"], RULES, select=["zero-fill,INS2"])) == {"INS602", "INS201"}
    assert codes(configure(["a"], RULES, ignore=["INS101"])) == set()
    assert configure(["a"], RULES, level="error").severity is Severity.ERROR


def test_everything_by_default(tmp_path):
    (tmp_path / ".git").mkdir()
    assert codes(configure([str(tmp_path)], RULES)) == {*RULES, "INS000", "INS001"}


def test_settings_of_the_folder_that_all_paths_are_in(project):
    (project / "a" / "pyproject.toml").write_text('[tool.instep]\nselect = ["INS2"]\n')
    assert codes(configure(["a/x.py"], RULES)) == {"INS201"}
    assert codes(configure(["a/x.py", "b"], RULES)) == {"INS101"}
    assert codes(configure(["-"], RULES)) == {"INS101"}
    assert codes(configure(["b"], RULES, file="a/pyproject.toml")) == {"INS201"}


def test_a_file_that_cannot_be_checked_is_told_unless_ignored_by_name():
    def told(**changes):
        return Settings(Config(Path.cwd(), **changes), RULES).tells_unchecked("x/a.py")

    assert told()
    assert told(select=frozenset({"INS101"}))
    assert not told(ignore=frozenset({"INS000"}))
    assert not told(per_file_ignores=(("x/*", frozenset({"INS000"})),))


@pytest.mark.parametrize("option", ["select", "ignore"])
def test_rules_have_to_exist(project, option):
    with pytest.raises(CheckError, match="Did you mean 'zero-fill'"):
        configure(["a"], RULES, **{option: ["zerofill"]})
    with pytest.raises(CheckError, match=f"--{option}: no rule is named"):
        configure(["a"], RULES, **{option: [" , "]})
