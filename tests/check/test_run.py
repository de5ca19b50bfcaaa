import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check.baseline import write_baseline
from instep.check.config import Config
from instep.check.discovery import Ignore
from instep.check.one import check_bytes
from instep.check.options import Settings
from instep.check.progress import Progress
from instep.check.quotes import Quotes
from instep.check.run import Run, Stdin, check, settle
from instep.rules.registry import names
from tests.check import fakes

LOOP = "for x in y:\n    loss.backward()\n    bad.step()\n"
MENDED = LOOP.replace("bad", "good")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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


def run(*paths, config=None, fixes=False, unsafe=False, baseline=None, **options):
    settings = Settings(
        config or Config(Path.cwd()), names(), fixes=fixes, unsafe=unsafe, baseline=baseline
    )
    made = Run(settings, paths or (".",), load=fakes.load, **options)
    return settle(made, check(made, Progress(io.StringIO(), is_on=False)))


def lines(checked):
    return [(f.place.path, f.place.line, f.code) for o in checked.outcomes for f in o.findings]


def test_only_files_that_speak_of_training_are_read(tree):
    tree(a_py=LOOP, b_py="x = bad\n", c__d_py=LOOP + "odd\n", broken_py="def (", e_txt="text")
    checked = run()
    assert lines(checked) == [
        ("a.py", 3, fakes.CODE),
        ("c/d.py", 3, fakes.CODE),
        ("c/d.py", 4, fakes.OTHER),
    ]
    assert set(checked.files) == {"a.py", "b.py", "broken.py", "c/d.py", "e.txt"}
    assert fakes.judged == ["a.py", "c/d.py"]


def test_a_cell_that_does_not_parse_is_told_and_the_others_are_checked(tree):
    cells = [
        {"cell_type": "code", "source": source}
        for source in ("x = = backward()", LOOP, "and = more")
    ]
    tree(a_ipynb=json.dumps({"cells": cells, "metadata": {}}))
    [outcome] = run().outcomes
    assert outcome.diagnostic is None
    assert [(f.place.cell, f.place.line) for f in outcome.findings] == [(2, 3)]
    [told] = outcome.unjudged
    assert (told.place.cell, told.place.line) == (1, 1)
    assert told.reason == "this cell does not parse, and was left out (invalid syntax)"


def test_a_named_file_is_parsed_in_any_case(tree):
    tree(broken_py="def (", b_py="x = bad\n")
    checked = run("./broken.py", "b.py")
    assert [o.diagnostic and o.diagnostic.kind for o in checked.outcomes] == ["syntax-error", None]
    assert lines(checked) == [("b.py", 1, fakes.CODE)]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"backward(", "syntax-error"),
        (b"print 'backward'", "python-2"),
        (b"# backward \xff", "undecodable"),
        (b"# backward \0", "null-bytes"),
        (b"backward\n" * 100_000, "too-large"),
        (b"backward = " + b"-" * 5000 + b"1", "too-deep"),
        (b"backward = deep", "too-deep"),
        (b"backward = explode", "crashed"),
    ],
)
def test_whatever_a_file_holds_there_is_one_diagnostic(tree, content, kind):
    tree(a_py=content, b_py=LOOP)
    first, second = run().outcomes
    assert first.diagnostic.kind == kind
    assert first.findings == ()
    assert second.diagnostic is None
    if kind == "crashed":
        assert "RuntimeError: boom, judge:" in first.diagnostic.what


def test_files_that_cannot_be_read(tree, monkeypatch):
    root = tree(a_py=LOOP)
    os.mkfifo(root / "pipe.py")
    (root / "gone.py").symlink_to("nowhere")
    huge = root / "huge.py"
    with huge.open("wb") as file:
        file.truncate(65 << 20)
    with (root / "log.txt").open("wb") as file:
        file.truncate(65 << 20)
    checked = run("pipe.py", "gone.py", "huge.py", "log.txt")
    kinds = {o.path: o.diagnostic and o.diagnostic.kind for o in checked.outcomes}
    assert kinds == {
        "pipe.py": "unreadable",
        "gone.py": "unreadable",
        "huge.py": "too-large",
        "log.txt": None,
    }


def test_comments_are_heard_and_counted(tree):
    tree(
        a_py=LOOP.replace("step()", "step()  # instep: ignore[clip-after-step]") + "# unknown\n",
        b_py="x = 1  # instep: ignore[clip-after-step]\n",
    )
    first, second = run().outcomes
    assert (first.findings, len(first.silenced), first.loops) == ((), 1, 1)
    assert [(each.place.line, each.reason) for each in first.unjudged] == [(4, "who knows")]
    assert [finding.code for finding in second.findings] == ["INS001"]
    only = Config(Path.cwd(), select=frozenset({fakes.CODE}))
    assert lines(run(config=only)) == []


def test_selected_rules_and_files_with_their_own(tree):
    tree(a_py=LOOP + "odd\n", x__b_py=LOOP + "odd\n")
    config = Config(
        Path.cwd(),
        ignore=frozenset({fakes.CODE}),
        per_file_ignores=(("x/*", frozenset({fakes.OTHER})),),
    )
    assert lines(run(config=config)) == [("a.py", 4, fakes.OTHER)]
    assert (
        lines(run(config=Config(Path.cwd(), exclude=("x/",)), exclude=[Ignore.globs(".", ["a.*"])]))
        == []
    )


def test_standard_input(tree):
    tree()
    checked = run("-", stdin=Stdin(LOOP.encode()))
    assert lines(checked) == [("-", 3, fakes.CODE)]
    cells = json.dumps({"cells": [{"cell_type": "code", "source": LOOP}]}).encode()
    checked = run("-", stdin=Stdin(cells, "n.ipynb"))
    assert checked.files == ("n.ipynb",)
    [finding] = checked.outcomes[0].findings
    assert (finding.place.cell, finding.place.line) == (1, 3)
    assert lines(run("-")) == []


def test_edits_of_reports_are_in_the_file_that_the_user_has(tree):
    tree(a_md=f"# é\n\n- x\n\n  ```python\n  {LOOP.strip()}\n  ```\n".replace("\n    ", "\n      "))
    [finding] = run().outcomes[0].findings
    [edit] = finding.fix.edits
    assert (finding.place.line, finding.place.column) == (edit.line, edit.column) == (8, 6)


def test_fixes_of_all_kinds_of_files(tree):
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": LOOP}]}, indent=1)
    contents = {
        "a_py": LOOP.replace("\n", "\r\n").encode(),
        "b_md": f"```python\n{LOOP}```\n\nbad\n\n```python\n{LOOP}```\n".encode(),
        "c_ipynb": notebook.encode(),
        "d_py": f"# coding: latin-1\n# é\n{LOOP}".encode("latin-1"),
    }
    tree(**contents)
    checked = run(fixes=True)
    assert [len(outcome.fixed) for outcome in checked.outcomes] == [1, 2, 1, 1]
    assert [outcome.findings for outcome in checked.outcomes] == [()] * 4
    for outcome, before in zip(checked.outcomes, contents.values(), strict=True):
        assert outcome.before == before == Path(outcome.path).read_bytes()
        bad = b"bad.step"
        assert outcome.after == before.replace(bad, b"good.step")


def test_what_is_not_to_be_fixed_is_not(tree):
    silent = LOOP.replace("step()", "step()  # instep: ignore")
    tree(a_py=silent, b_py=LOOP.replace("bad", "odd"), c_py=LOOP.replace("bad", "fine"))
    assert all(outcome.after is None for outcome in run(fixes=True).outcomes)
    assert lines(run(fixes=True)) == [("b.py", 3, fakes.OTHER)]
    _, second, _ = run(fixes=True, unsafe=True).outcomes
    assert second.after == MENDED.encode()
    ignoring = Config(Path.cwd(), ignore=frozenset({fakes.OTHER}))
    assert lines(run(fixes=True, unsafe=True, config=ignoring)) == []


def test_what_the_baseline_knows_is_left_alone(tree):
    tree(a_py=LOOP)
    found = [finding for outcome in run().outcomes for finding in outcome.findings]
    baseline = write_baseline("b.json", found, Quotes().line)
    [outcome] = run(fixes=True, baseline=baseline).outcomes
    assert outcome.after is None
    tree(a_py=LOOP + "    bad()\n")
    [outcome] = run(fixes=True, baseline=baseline).outcomes
    assert outcome.after == (LOOP + "    good()\n").encode()


def test_comments_that_silence_nothing_are_removed(tree):
    text = "x = backward  # instep: ignore[clip-after-step, clip-before-unscale] why\n"
    tree(a_py=text, b_py="backward  # noqa: INS302\n")
    first, second = run(fixes=True).outcomes
    assert first.after == b"x = backward  # why\n"
    assert second.after == b"backward\n"
    assert len(first.fixed) == 2
    config = Config(Path.cwd(), ignore=frozenset({"INS001"}))
    assert [outcome.after for outcome in run(fixes=True, config=config).outcomes] == [None, None]


def test_an_encoding_that_lacks_a_letter_of_the_fix(tree, monkeypatch):
    real = fakes.mend

    def mend(*given):
        mended = real(*given)
        mended.text = mended.text.replace("good", "gööd")
        return mended

    monkeypatch.setattr(fakes, "mend", mend)
    tree(a_py=f"# coding: ascii\n{LOOP}", b_py=LOOP)
    first, second = run(fixes=True).outcomes
    assert first.after is None
    assert [finding.code for finding in first.findings] == [fakes.CODE]
    assert "gööd" in second.after.decode()


def test_a_fix_that_breaks_the_file_is_not_made(tree, monkeypatch):
    def mend(unit, *_):
        return replace_text(unit.text)

    def replace_text(text):
        from types import SimpleNamespace

        return SimpleNamespace(text=text + "def (backward", fixed=())

    monkeypatch.setattr(fakes, "mend", mend)
    tree(a_py=LOOP)
    [outcome] = run(fixes=True).outcomes
    assert (outcome.after, outcome.diagnostic) == (None, None)
    assert len(outcome.findings) == 1


def test_what_is_cached_is_not_judged_again(tree):
    root = tree(a_py=LOOP, b_py=LOOP + "# unknown\n", broken_py="backward(")
    folder = str(root / "c")
    first = run(cache=folder)
    assert fakes.judged == ["a.py", "b.py"]
    assert run(cache=folder) == first
    assert fakes.judged == ["a.py", "b.py"]
    tree(a_py=LOOP + "\n")
    run(cache=folder)
    assert fakes.judged == ["a.py", "b.py", "a.py"]
    run(cache=folder, fixes=True)
    assert len(fakes.judged) > 3


def test_a_crash_is_not_remembered(tree):
    root = tree(a_py="backward = explode")
    run(cache=str(root / "c"))
    run(cache=str(root / "c"))
    assert fakes.judged == ["a.py", "a.py"]


@given(
    st.binary(max_size=60) | st.text("backwrd()\n #:'\"\t{}[]=\\`~é", max_size=80).map(str.encode),
    st.sampled_from(["python", "notebook", "markdown", "stdin"]),
    st.booleans(),
    st.booleans(),
)
def test_no_bytes_make_it_fail(data, kind, fixes, named):
    settings = Settings(Config(Path.cwd()), names(), fixes=fixes)
    outcome = check_bytes(data, "a.py", kind, settings, fakes.load(), named=named)
    assert outcome.diagnostic is None or outcome.diagnostic.kind != "crashed"
    assert outcome.after is None


def test_the_same_outcome_in_whatever_order(tree):
    tree(b_py=LOOP, a_py=LOOP)
    assert lines(run("b.py", "a.py")) == [("b.py", 3, fakes.CODE), ("a.py", 3, fakes.CODE)]
    assert replace(Run(Settings(Config(Path.cwd()), {})), jobs=2).jobs == 2
