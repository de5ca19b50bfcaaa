import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.check.gitignore import Patterns

CASES = [
    # pattern, ignored, not ignored; a path that ends in / is a folder
    ("*.py", ["a.py", "d/a.py"], ["a.pyc"]),
    ("/a.py", ["a.py"], ["d/a.py"]),
    ("d/a.py", ["d/a.py"], ["e/d/a.py"]),
    ("build/", ["build/", "a/build/"], ["build"]),
    ("/build/", ["build/"], ["a/build/"]),
    ("**/logs", ["logs", "a/logs", "a/b/logs"], ["logs2"]),
    ("a/**", ["a/b", "a/b/c"], ["a", "b/a/c"]),
    ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
    ("a**b", ["ab", "axb", "d/axb"], ["a/b"]),
    ("d/a**b", ["d/ab", "d/axb"], ["d/a/b"]),
    ("d/***/b", ["d/b", "d/x/b"], []),
    ("a?c", ["abc"], ["ac", "a/c"]),
    ("d/[ab]", ["d/a"], ["d/c"]),
    ("[!a]x", ["bx"], ["ax", "x"]),
    ("[^a]x", ["bx"], ["ax"]),
    ("[]a]x", ["]x", "ax"], ["bx"]),
    ("[a-c-]x", ["bx", "-x"], ["dx"]),
    ("[c-a]x", [], ["bx", "x"]),
    ("[[:digit:]a]x", ["1x", "ax"], ["bx"]),
    ("[[:nope:]]x", [], ["nx", ":x"]),
    (r"[\]]x", ["]x"], ["\\x"]),
    ("[ab", [], ["[ab", "a"]),
    (r"\#a", ["#a"], [r"\#a"]),
    ("#a", [], ["#a"]),
    (r"\!a", ["!a"], ["a"]),
    (r"a\*", ["a*"], ["ab"]),
    ("a   ", ["a"], ["a "]),
    (r"a\ ", ["a "], ["a"]),
    (r"a\  ", ["a "], ["a", "a  "]),
    ("a\\", [], ["a", "a\\"]),
    ("/", [], ["a", "a/"]),
    ("", [], ["a"]),
    ("!", [], ["a"]),
    ("*", ["a", "a/b"], []),
    ("/*", ["a"], ["a/b"]),
    ("a.b", ["a.b"], ["axb"]),
    ("(a|b)+", ["(a|b)+"], ["a"]),
    ("d/*", ["d/a"], ["d/a/b", "d"]),
    ("foo/bar/", ["foo/bar/"], ["foo/bar", "x/foo/bar/"]),
]


def verdict(lines, path):
    return bool(Patterns.of(lines).verdict(path.rstrip("/"), is_folder=path.endswith("/")))


@pytest.mark.parametrize(("pattern", "ignored", "others"), CASES)
def test_patterns(pattern, ignored, others):
    assert [path for path in ignored if not verdict([pattern], path)] == []
    assert [path for path in others if verdict([pattern], path)] == []


def test_the_last_pattern_that_matches_decides():
    lines = ["*.py", "!keep*", "keep_not.py"]
    assert [verdict(lines, p) for p in ("a.py", "keep.py", "keep_not.py")] == [True, False, True]
    assert Patterns.of(lines).verdict("a.md") is None


def test_a_file_with_a_mark_and_windows_line_endings():
    patterns = Patterns.of_text("\ufeffa.py\r\n\r\n# comment\r\nb.py")
    assert [patterns.verdict(name) for name in ("a.py", "b.py", "# comment")] == [True, True, None]


GIT = shutil.which("git")
needs_git = pytest.mark.skipif(GIT is None, reason="git is not here")
pieces = st.sampled_from(
    [
        "a",
        "b",
        "c.py",
        "*",
        "**",
        "***",
        "?",
        "/",
        "/",
        "[ab]",
        "[!a]",
        "[^/]",
        "[a",
        "]",
        "\\",
        "\\*",
        "!",
        "#",
        " ",
        "-",
        "[a-c]",
        "[*-b]",
        "[[:alpha:]]",
        ".",
    ]
)
patterns = st.lists(pieces, min_size=1, max_size=5).map("".join)
names = st.sampled_from(["a", "b", "ab", "c.py", "abc", "a*", "]", "-", "#", "a b"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run([GIT, "init", "--quiet", str(folder)], check=True)
    return folder


def git_ignores(folder, paths):
    done = subprocess.run(
        [GIT, "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=folder,
        input="\0".join(paths).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return set(done.stdout.decode().split("\0")) - {""}


@needs_git
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(patterns, min_size=1, max_size=4), st.sets(paths, min_size=5, max_size=12))
def test_it_agrees_with_git(repository, lines, tested):
    (repository / ".gitignore").write_text("\n".join(lines) + "\n")
    by_git = git_ignores(repository, sorted(tested))
    rules = Patterns.of(lines)
    for path in sorted(tested):
        parts = path.split("/")
        # Nothing below an ignored folder comes back; git asks from the top, and so does the walk.
        ours = any(
            rules.verdict("/".join(parts[:end]), is_folder=end < len(parts))
            for end in range(1, len(parts) + 1)
        )
        assert ours == (path in by_git), (lines, path)


@needs_git
@pytest.mark.parametrize(("pattern", "ignored", "others"), CASES)
def test_git_agrees_with_the_table(repository, pattern, ignored, others):
    (repository / ".gitignore").write_text(f"{pattern}\n")
    files = [path for path in [*ignored, *others] if not path.endswith("/")]
    by_git = git_ignores(repository, files) if files else set()
    for path in files:
        above = path.rpartition("/")[0]
        expected = path in ignored or (above != "" and verdict([pattern], f"{above}/"))
        assert (path in by_git) == expected, path
