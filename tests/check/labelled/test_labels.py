"""The labels of the second set are well-formed; no checker is needed to say so."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

SECOND = Path(__file__).parent / "second"
WRONG = sorted((SECOND / "wrong").glob("*.py"))
RIGHT = sorted((SECOND / "right").glob("*.py"))

CODES = {
    f"INS{family}{number:02}"
    for family, count in {1: 6, 2: 7, 3: 8, 4: 2, 5: 3, 6: 4}.items()
    for number in range(1, count + 1)
}
FAMILIES = "123456"
TRAPS = range(1, 20)

LABEL = re.compile(r"# (expect|expect-one): (INS\d{3}(?:\|INS\d{3})*)")
TOPIC = re.compile(r"# (?:trap (?P<trap>\d+)|looks like (?P<code>INS\d{3})): \S.*")


def stem(path: Path) -> str:
    return path.stem


def comments(path: Path) -> list[tokenize.TokenInfo]:
    source = path.read_text(encoding="utf-8-sig")
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token for token in tokens if token.type == tokenize.COMMENT]


def labels(path: Path) -> list[tuple[str, frozenset[str], int]]:
    """Kind, acceptable codes and line of every label in a wrong loop."""
    found = []
    for token in comments(path):
        if "expect" in token.string:
            match = LABEL.fullmatch(token.string)
            assert match, f"{path.name}:{token.start[0]}: {token.string}"
            before = token.line[: token.start[1]]
            assert before.strip(), f"{path.name}:{token.start[0]}: a label follows code on its line"
            found.append((match[1], frozenset(match[2].split("|")), token.start[0]))
    return found


def family(path: Path) -> str:
    match = re.match(r"(?:not_)?ins([1-6])\d\d_", path.name)
    assert match, path.name
    return match[1]


def trap(path: Path) -> str | None:
    match = TOPIC.fullmatch(path.read_text(encoding="utf-8-sig").splitlines()[0])
    assert match, path.name
    return match["trap"]


@pytest.mark.parametrize("path", WRONG + RIGHT, ids=stem)
def test_a_loop_parses_and_is_short(path):
    source = path.read_text(encoding="utf-8-sig")
    ast.parse(source)
    assert 10 <= len(source.splitlines()) <= 60


@pytest.mark.parametrize("path", WRONG, ids=stem)
def test_a_wrong_loop_names_one_finding(path):
    found = labels(path)
    kinds = Counter(kind for kind, _, _ in found)
    assert kinds == {"expect": 1} or (set(kinds) == {"expect-one"} and kinds["expect-one"] > 1)
    codes = frozenset().union(*(codes for _, codes, _ in found))
    assert codes <= CODES
    assert path.name[:6].upper() in codes


@pytest.mark.parametrize("path", RIGHT, ids=stem)
def test_a_right_loop_says_why_it_looks_wrong(path):
    assert path.name.startswith("not_")
    number = trap(path)
    assert number is None or int(number) in TRAPS
    marks = [token for token in comments(path) if "expect" in token.string]
    assert [(mark.string, mark.start) for mark in marks] == [("# expect: nothing", (2, 0))]


def test_every_code_is_expected_by_a_file_of_its_name():
    assert len(CODES) == 30
    assert {path.name[:6].upper() for path in WRONG} == CODES


@pytest.mark.parametrize("paths", [WRONG, RIGHT], ids=["wrong", "right"])
def test_every_family_has_eight_loops(paths):
    counted = Counter(map(family, paths))
    assert set(counted) == set(FAMILIES)
    assert min(counted.values()) >= 8


def test_every_trap_is_there():
    assert {int(number) for path in RIGHT if (number := trap(path))} == set(TRAPS)


def test_the_readme_lists_every_file():
    listed = re.findall(r"^\| `(\w+/\w+\.py)` \|", (SECOND / "README.md").read_text(), re.MULTILINE)
    assert listed == [str(path.relative_to(SECOND)) for path in WRONG + RIGHT]
