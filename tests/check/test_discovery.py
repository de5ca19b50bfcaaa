import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.check.discovery import Ignore, discover, is_out
from instep.errors import CheckError

GIT = shutil.which("git")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(*names, **contents):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        for name, content in contents.items():
            path = tmp_path / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path

    return make


def found(*paths, exclude=()):
    globs = [Ignore.globs(Path.cwd(), exclude)] if exclude else []
    return [path.as_posix() for path in discover(paths or (".",), exclude=globs)]


def test_every_kind_of_file_in_order(tree):
    tree("b.py", "a.py", "d/c.ipynb", "d/README.md", "x.csv", "z.py", "e.txt", "c/n.rst", "run")
    assert found() == ["a.py", "b.py", "e.txt", "z.py", "c/n.rst", "d/README.md", "d/c.ipynb"]
    assert found() == found(".")
    assert found("d", "a.py", "d/c.ipynb") == ["d/README.md", "d/c.ipynb", "a.py"]


def test_other_peoples_code_is_left_out(tree):
    tree("a.py", "env/pyvenv.cfg", "env/b.py", "lib/site-packages/c.py", "node_modules/d.py")
    tree(".hidden/e.py", ".git/f.py", "__pycache__/g.py", ".h.py", "x/.venv/i.py")
    assert found() == ["a.py"]


def test_a_named_file_or_folder_is_searched_all_the_same(tree):
    tree(".hidden/e.py", "env/pyvenv.cfg", "env/b.py", "script", ".git/HEAD", "build/x.py")
    tree(_gitignore="build/\n*.tmp.py\n")
    tree("a.tmp.py")
    assert found(".hidden", "env", "script") == [".hidden/e.py", "env/b.py", "script"]
    assert found("a.tmp.py", "build/x.py", "build") == ["a.tmp.py", "build/x.py"]


def test_nested_gitignores(tree):
    tree("a.py", "b.py", "d/a.py", "d/b.py", "d/e/a.py", "d/e/b.py", ".git/HEAD")
    (tree() / ".gitignore").write_text("a.py\n")
    (tree() / "d/.gitignore").write_text("!a.py\n/b.py\n")
    (tree() / "d/e/.gitignore").write_text("a.py\n")
    assert found() == ["b.py", "d/a.py", "d/e/b.py"]
    # From below, what stands above still counts.
    assert found("d/e") == ["d/e/b.py"]
    os.chdir("d")
    assert found() == ["a.py", "e/b.py"]


def test_above_counts_only_inside_a_repository(tree):
    tree("d/a.py")
    (tree() / ".gitignore").write_text("a.py\n")
    assert found("d") == ["d/a.py"]
    (tree() / ".git/info").mkdir(parents=True)
    assert found("d") == []
    (tree() / ".gitignore").write_text("")
    (tree() / ".git/info/exclude").write_text("/d/a.py\n")
    assert found("d") == []


def test_an_ignored_folder_cannot_be_brought_back_in_part(tree):
    tree("d/a.py", "e/a.py")
    (tree() / ".gitignore").write_text("d/\n!d/a.py\ne/*\n!e/a.py\n")
    assert found() == ["e/a.py"]


def test_exclude(tree):
    tree("a.py", "old/a.py", "old/deep/b.py", "src/old.py", "src/gen/c.py", "src/gen/keep.md")
    assert found(exclude=["old/", "gen/*.py"]) == [
        "a.py",
        "src/old.py",
        "src/gen/c.py",
        "src/gen/keep.md",
    ]
    assert found(exclude=["old", "**/gen/*.py"]) == ["a.py", "src/old.py", "src/gen/keep.md"]
    assert found(exclude=["src/**", "/a.py"]) == ["old/a.py", "old/deep/b.py"]
    # Hooks pass file names; what is excluded stays out.
    assert found("old/deep/b.py", "a.py", exclude=["old/"]) == ["a.py"]
    assert found(str(Path("old/deep/b.py").absolute()), exclude=["old/"]) == []


def test_links(tree):
    tree("d/a.py", "elsewhere/b.py")
    (tree() / "d/loop").symlink_to(tree(), target_is_directory=True)
    (tree() / "d/self").symlink_to("self")
    (tree() / "d/gone.py").symlink_to("nowhere.py")
    (tree() / "d/0.py").symlink_to("a.py")
    (tree() / "d/b.py").symlink_to(tree() / "elsewhere/b.py")
    assert found("d") == ["d/a.py", "d/b.py"]
    assert found() == ["d/a.py", "elsewhere/b.py"]
    assert found("d/loop/d") == ["d/loop/d/a.py", "d/loop/d/b.py"]


def test_folders_named_like_files(tree):
    tree("a.py/b.py")
    assert found() == ["a.py/b.py"]


def test_deep_trees_do_not_recurse(tree):
    folder = tree()
    for _ in range(400):
        folder = folder / "d"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text("")
    assert len(found()) == 1


def test_standard_input_and_missing_paths(tree):
    tree("a.py")
    assert found("-", "a.py", "-") == ["-", "a.py"]
    with pytest.raises(CheckError, match=r"there is no 'b\.py'") as error:
        found("a.py", "b.py")
    assert len(str(error.value).splitlines()) == 4


def test_a_folder_that_cannot_be_listed_is_passed_over(tree, monkeypatch):
    tree("a.py", "secret/b.py")
    real = os.scandir

    def scandir(path):
        if Path(path).name == "secret":
            raise PermissionError
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert found() == ["a.py"]


names = st.sampled_from(["a", "b", "c"])
files = st.sets(
    st.tuples(st.lists(names, max_size=2), st.sampled_from(["x.py", "y.py", "z.md"])).map(
        lambda parts: "/".join([*parts[0], parts[1]])
    ),
    min_size=1,
    max_size=10,
)
lines = st.lists(
    st.sampled_from(
        [
            "*.py",
            "!*.py",
            "a",
            "a/",
            "/a",
            "!a",
            "!a/",
            "b/x.py",
            "!b/x.py",
            "**/c",
            "a/**",
            "!x.py",
            "/*",
            "!/b",
            "c/*",
            "[xy].py",
        ]
    ),
    max_size=4,
)


@pytest.mark.skipif(GIT is None, reason="git is not here")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files, lines, st.dictionaries(names, lines, max_size=2))
def test_it_finds_what_git_would_add(tmp_path_factory, wanted, top, nested):
    root = tmp_path_factory.mktemp("tree")
    subprocess.run([GIT, "init", "--quiet", str(root)], check=True)
    for file in wanted:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("")
    (root / ".gitignore").write_text("\n".join(top))
    for folder, patterns in nested.items():
        if (root / folder).is_dir():
            (root / folder / ".gitignore").write_text("\n".join(patterns))
    listed = subprocess.run(
        [GIT, "-c", "core.excludesFile=/dev/null", "ls-files", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    ours = [path.relative_to(root).as_posix() for path in discover([root])]
    assert sorted(ours) == sorted(name for name in listed if not name.endswith(".gitignore"))


def test_whether_one_file_is_out(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("build/\n*.log.py\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".gitignore").write_text("!keep.log.py\n")

    def out(path, *globs):
        return is_out(str(tmp_path / path), [Ignore.globs(tmp_path, globs)])

    assert [out("a.py"), out("build/a.py"), out("build/x/a.py"), out("a.log.py")] == [
        False,
        True,
        True,
        True,
    ]
    assert [out("sub/keep.log.py"), out("sub/a.log.py")] == [False, True]
    assert [out("a.py", "a.*"), out("sub/x/a.py", "sub")] == [True, True]
