import pytest

from instep.check.config import Config, find_config, load_config, resolve
from instep.errors import CheckError
from instep.rules.finding import Severity

RULES = {
    "INS101": "missing-zero-grad",
    "INS102": "cleared-before-step",
    "INS201": "unscaled-accumulation",
    "INS602": "zero-fill",
}


@pytest.fixture
def project(tmp_path):
    (tmp_path / ".git").mkdir()  # the search must not leave the test's folder

    def write(text, folder="."):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "pyproject.toml").write_text(text)
        return tmp_path

    return write


def test_everything(project):
    root = project(
        """
        [tool.instep]
        select = ["INS1", "zero-fill", "INS201"]
        ignore = ["cleared-before-step"]
        exclude = ["old/"]
        severity = "error"
        baseline = "known.json"
        [tool.instep.per-file-ignores]
        "tests/*" = ["missing-zero-grad", "INS6"]
        """
    )
    config = find_config(root / "src", RULES)
    assert config == Config(
        root=root,
        source=root / "pyproject.toml",
        select=frozenset(RULES),
        ignore=frozenset({"INS102"}),
        exclude=("old/",),
        severity=Severity.ERROR,
        per_file_ignores=(("tests/*", frozenset({"INS101", "INS602"})),),
        baseline=root / "known.json",
    )
    assert config.codes_for(root / "a.py", RULES) == {"INS101", "INS201", "INS602"}
    assert config.codes_for(root / "tests/a.py", RULES) == {"INS201"}
    assert config.codes_for(root / "tests/deep/a.py", RULES) == {"INS201"}
    assert config.excluded().covers(str(root / "old/a/b.py"))
    assert not config.excluded().covers(str(root / "new/b.py"))


def test_paths_are_relative_to_where_the_user_is(project, monkeypatch):
    root = project('[tool.instep.per-file-ignores]\n"a.py" = ["zero-fill"]')
    (root / "src").mkdir()
    monkeypatch.chdir(root / "src")
    config = find_config(".", RULES)
    assert "INS602" not in config.codes_for("a.py", RULES)
    assert "INS602" not in config.codes_for("../x/a.py", RULES)
    assert "INS602" in config.codes_for("b.py", RULES)
    (root / "src/deep").mkdir()
    assert find_config("deep/..", RULES) == config
    assert find_config("..", RULES) == config


def test_defaults(project):
    root = project("[project]\nname = 'x'\n")
    config = find_config(root, RULES)
    assert config == Config(root=root)
    assert config.codes_for("a.py", RULES) == set(RULES)
    assert config.severity is Severity.WARNING


def test_the_nearest_table_counts(project):
    root = project('[tool.instep]\nignore = ["INS101"]')
    project('[tool.instep]\nignore = ["INS102"]', "a/b")
    project("[project]\nname = 'inner'", "a/c")
    project('[tool.instep]\nignore = ["INS201"]', "other")
    (root / "other/repository/.git").mkdir(parents=True)
    assert find_config(root / "a/b/c", RULES).ignore == {"INS102"}
    assert find_config(root / "a/c", RULES).ignore == {"INS101"}
    assert find_config(root / "a/c/train.py", RULES).ignore == {"INS101"}
    assert find_config(root / "other/repository/x", RULES).ignore == frozenset()


def test_an_empty_select_is_no_rule(project):
    assert find_config(project("[tool.instep]\nselect = []"), RULES).codes_for("a", RULES) == set()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '[tool.instep]\nselct = ["INS101"]',
            "there is no setting 'selct'. Did you mean 'select'?",
        ),
        ('[tool.instep]\nper_file_ignores = ["INS101"]', "Did you mean 'per-file-ignores'?"),
        ("[tool.instep]\nqqqq = 1", "there is no setting 'qqqq'."),
        ('[tool.instep]\nignore = ["missing-zerograd"]', "Did you mean 'missing-zero-grad'?"),
        ('[tool.instep]\nignore = ["INS110"]', "there is no rule 'INS110'. Did you mean 'INS1"),
        ('[tool.instep]\nignore = ["INS9"]', "there is no rule 'INS9'"),
        ('[tool.instep]\nignore = [""]', "there is no rule ''"),
        ('[tool.instep]\nignore = ["I"]', "there is no rule 'I'"),
        ('[tool.instep]\nignore = "INS101"', "ignore: expected a list of strings, got 'INS101'"),
        ("[tool.instep]\nselect = [1]", "select: expected a list of strings, got [1]"),
        ("[tool.instep]\nexclude = {}", "exclude: expected a list of strings"),
        ("[tool.instep]\nbaseline = true", "baseline: expected a string, got True"),
        ("[tool.instep]\nseverity = 3", "severity: expected a string, got 3"),
        ('[tool.instep]\nseverity = "warn"', "'warn' is no severity. Did you mean 'warning'?"),
        ('[tool.instep]\nper-file-ignores = ["a"]', "per-file-ignores: expected a table"),
        ('[tool.instep]\nper-file-ignores = {"a" = "INS101"}', "'a': expected a list of strings"),
        ('[tool.instep]\nper-file-ignores = {"a" = ["zerofill"]}', "Did you mean 'zero-fill'?"),
        ("[tool]\ninstep = 3", "expected a table, got 3"),
        ("tool = 3 # instep", "it cannot be read"),
        ("[tool.instep\n", "it cannot be read"),
    ],
)
def test_mistakes_are_errors_of_four_lines(project, text, says):
    root = project(text)
    with pytest.raises(CheckError) as error:
        find_config(root, RULES)
    assert says in error.value.what
    assert str(root / "pyproject.toml") in error.value.what
    assert len(str(error.value).splitlines()) == 4


def test_a_named_file(project):
    root = project("[tool.instep]\nignore = ['zero-fill']")
    assert load_config(root / "pyproject.toml", RULES).ignore == {"INS602"}
    (root / "empty.toml").write_text("")
    assert load_config(root / "empty.toml", RULES).source == root / "empty.toml"
    with pytest.raises(CheckError, match="there is no"):
        load_config(root / "none.toml", RULES)


def test_not_even_utf_8(project):
    root = project("")
    (root / "pyproject.toml").write_bytes(b"instep \xff")
    with pytest.raises(CheckError, match="cannot be read"):
        find_config(root, RULES)


def test_a_project_that_says_nothing_to_us_may_be_as_broken_as_it_likes(project):
    assert find_config(project("= 1"), RULES).source is None


def test_rules_by_any_name():
    assert resolve(["all"], RULES, where="--select") == set(RULES)
    assert resolve(["Zero-Fill", "ins101", "INS"], RULES, where="--select") == set(RULES)
    with pytest.raises(CheckError, match=r"--select: there is no rule 'zero-fil'\. Did you mean"):
        resolve(["zero-fil"], RULES, where="--select")
