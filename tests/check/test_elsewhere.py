"""Findings in imported files; the judge is a fake that finds what it is told to."""

import io
from pathlib import Path

import pytest

from instep.check.config import Config
from instep.check.discovery import Ignore
from instep.check.elsewhere import by_file, gathered
from instep.check.options import Settings
from instep.check.outcome import Outcome
from instep.check.progress import Progress
from instep.check.run import Run, check, settle
from instep.rules import Finding, Fix, Severity
from instep.rules.registry import names
from instep.trace import Place
from instep.trace.plain import replace
from tests.check import fakes

LOOP = "for x in y:\n    loss.backward()\n"
HELPER = "def clip():\n    norm()\n    step()\n"


def found(path="helper.py", line=2, code=fakes.CODE, column=4):
    place = Place(path, line, column)
    return Finding(code, names()[code], Severity.ERROR, place, "together it is bad.")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fakes.judged.clear()
    fakes.followed.clear()
    fakes.elsewhere.clear()
    (tmp_path / ".git").mkdir()

    def make(**contents):
        for name, content in contents.items():
            path = tmp_path / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path

    yield make
    fakes.elsewhere.clear()


def run(*paths, config=None, fixes=False, write=False, **options):
    settings = Settings(config or Config(Path.cwd()), names(), fixes=fixes)
    made = Run(settings, paths or (".",), load=fakes.load, **options)
    checked = check(made, Progress(io.StringIO(), is_on=False))
    for outcome in checked.outcomes:
        if write and outcome.after is not None:
            Path(outcome.path).write_bytes(outcome.after)
    return settle(made, checked)


def lines(checked):
    return [(f.place.path, f.place.line, f.code) for o in checked.outcomes for f in o.findings]


def test_it_is_reported_under_its_own_file_and_once(tree):
    tree(a_py=LOOP, b_py=LOOP, helper_py=HELPER, z_py=LOOP)
    fakes.elsewhere.update({"a.py": [found()], "b.py": [found(), found(line=3)]})
    assert lines(run()) == [("helper.py", 2, fakes.CODE), ("helper.py", 3, fakes.CODE)]
    assert [outcome.path for outcome in run().outcomes] == ["a.py", "b.py", "helper.py", "z.py"]


def test_what_the_file_says_itself_is_not_said_again(tree):
    tree(a_py=LOOP, helper_py=LOOP + "    bad()\n" + HELPER)
    fakes.elsewhere["a.py"] = [found(line=3), found(line=5)]
    checked = run()
    assert lines(checked) == [("helper.py", 3, fakes.CODE), ("helper.py", 5, fakes.CODE)]
    first, second = checked.outcomes[1].findings
    assert (first.message, second.message) == ("it is bad.", "together it is bad.")
    assert first.fix is not None
    assert second.fix is None


def test_a_file_outside_the_run_is_reported_unless_it_is_out(tree):
    root = tree(a_py=LOOP, helper_py=HELPER, lib__helper_py=HELPER)
    fakes.elsewhere["a.py"] = [found(), found("lib/helper.py")]
    here = [("helper.py", 2, fakes.CODE)]
    both = [*here, ("lib/helper.py", 2, fakes.CODE)]
    assert lines(run("a.py")) == both
    assert lines(run("a.py", exclude=[Ignore.globs(root, ["lib"])])) == here
    assert lines(run("a.py", config=Config(root, exclude=("helper.py",)))) == []
    for ignored in ("lib/", "lib/*.py", "*/helper.py"):
        tree(_gitignore=ignored)
        assert lines(run("a.py")) == here
        assert lines(run()) == here
    tree(_gitignore="", lib___gitignore="*")
    assert lines(run("a.py")) == here
    assert lines(run("a.py", "lib/helper.py")) == both[::-1]


def test_the_rules_of_its_own_file_count(tree):
    root = tree(a_py=LOOP, helper_py=HELPER)
    fakes.elsewhere["a.py"] = [found(), found(line=3, code=fakes.OTHER)]
    config = Config(root, per_file_ignores=(("helper.py", frozenset({fakes.CODE})),))
    assert lines(run(config=config)) == [("helper.py", 3, fakes.OTHER)]
    config = Config(root, per_file_ignores=(("a.py", frozenset({fakes.CODE})),))
    assert len(lines(run(config=config))) == 2
    assert lines(run(config=Config(root, select=frozenset({"INS101"})))) == []


def test_comments_in_its_own_file_silence_it_and_are_in_use(tree):
    comment = "  # instep: ignore[clip-after-step]"
    tree(a_py=LOOP, helper_py=f"def clip():\n    norm(){comment}\n    step(){comment}\n")
    assert lines(run()) == [("helper.py", 2, "INS001"), ("helper.py", 3, "INS001")]
    fakes.elsewhere["a.py"] = [found()]
    checked = run()
    assert lines(checked) == [("helper.py", 3, "INS001")]
    assert len(checked.outcomes[1].silenced) == 1
    assert lines(run("a.py")) == []


@pytest.mark.parametrize("comment", ["instep: ignore[clip-after-step]", "instep: ignore"])
def test_fixing_leaves_comments_that_others_need(tree, comment):
    tree(a_py=LOOP, helper_py=f"def clip():\n    norm()  # {comment}\n")
    fakes.elsewhere["a.py"] = [found()]
    assert all(outcome.after is None for outcome in run(fixes=True).outcomes)
    fakes.elsewhere.clear()
    assert run(fixes=True).outcomes[1].after == b"def clip():\n    norm()\n"


def test_after_a_fix_it_is_looked_for_again(tree):
    tree(a_py=LOOP, helper_py=LOOP + "    bad()\n" + HELPER)
    fakes.elsewhere["a.py"] = [found(line=5)]
    fakes.judged.clear()
    checked = run(fixes=True, write=True)
    assert lines(checked) == [("helper.py", 5, fakes.CODE)]
    assert fakes.judged[-1] == "a.py"
    assert "good" in Path("helper.py").read_text()


def test_the_cache_knows_it_too(tree):
    root = tree(a_py=LOOP, helper_py=HELPER)
    fakes.elsewhere["a.py"] = [found()]
    first = run(cache=str(root / "c"))
    fakes.elsewhere.clear()
    assert run(cache=str(root / "c")) == first
    assert fakes.judged == ["a.py"]


def test_paths_are_shown_the_way_the_others_are(tree):
    root = tree(a_py=LOOP, helper_py=HELPER)
    absolute = str(root / "a.py")
    fakes.elsewhere[absolute] = [found()]
    assert lines(run(absolute)) == [(str(root / "helper.py"), 2, fakes.CODE)]
    fakes.elsewhere["a.py"] = [found(str(root / "helper.py"))]
    assert lines(run(".")) == [("helper.py", 2, fakes.CODE)]


def test_a_file_that_is_gone_by_now_says_nothing(tree):
    tree(a_py=LOOP)
    outcome = Outcome("a.py", elsewhere=(found("gone.py"),))
    settings = Settings(Config(Path.cwd()), names())
    assert list(by_file([outcome])) == [str(Path("gone.py").absolute())]
    after = gathered([outcome], ["a.py"], settings, lambda path: False)
    assert [(each.path, each.findings) for each in after] == [("a.py", ()), ("gone.py", ())]


@pytest.mark.parametrize("severities", [("INFO", "WARNING"), ("WARNING", "INFO")])
def test_of_two_judgements_the_graver_one_stands(severities):
    mild, grave = found(), found()
    mild = replace(mild, severity=Severity.INFO, message="maybe.", fix=Fix("a title", ()))
    other = [replace(grave, severity=getattr(Severity, name)) for name in severities]
    own = Outcome("helper.py", findings=(mild,))
    importers = [Outcome(f"{n}.py", elsewhere=(one,)) for n, one in enumerate(other)]
    settings = Settings(Config(Path.cwd()), names())
    paths = ["helper.py", "0.py", "1.py"]
    first, *_ = gathered([own, *importers], paths, settings, lambda _: False)
    (shown,) = first.findings
    assert (shown.severity, shown.message) == (Severity.WARNING, "together it is bad.")
    assert shown.fix == mild.fix


def test_a_milder_one_changes_nothing():
    own = Outcome("helper.py", findings=(found(),))
    importer = Outcome("0.py", elsewhere=(replace(found(), severity=Severity.INFO),))
    settings = Settings(Config(Path.cwd()), names())
    first, *_ = gathered([own, importer], ["helper.py", "0.py"], settings, lambda _: False)
    assert first.findings == own.findings
