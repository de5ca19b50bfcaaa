"""The labels of the sets are well-formed; no checker is needed to say so."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.check.labelled.labels import CODES, Label, blocks, is_right, labels

HERE = Path(__file__).parent
FAMILIES = "123456"
TRAPS = range(1, 20)
TOPIC = re.compile(r"# (?:trap (?P<trap>\d+)|looks like (?P<code>INS\d{3})): \S.*")


class LabelledSet(NamedTuple):
    folder: Path
    shortest: int
    longest: int
    per_family: int
    per_code: int

    @property
    def wrong(self) -> list[Path]:
        return sorted((self.folder / "wrong").glob("*.py"))

    @property
    def right(self) -> list[Path]:
        return sorted((self.folder / "right").glob("*.py"))


FIRST = LabelledSet(HERE / "first", shortest=8, longest=45, per_family=10, per_code=2)
SECOND = LabelledSet(HERE / "second", shortest=10, longest=60, per_family=8, per_code=1)
SETS = [FIRST, SECOND]
WRONG = FIRST.wrong + SECOND.wrong
RIGHT = FIRST.right + SECOND.right
ARTICLES = sorted(path for path in (HERE / "articles").glob("*.md") if path.name != "README.md")
BLOCKS = [(path, block) for path in ARTICLES for block in blocks(path.read_text())]
PROJECTS = HERE / "projects"
WRONG_PROJECTS = sorted((PROJECTS / "wrong").iterdir())
RIGHT_PROJECTS = sorted((PROJECTS / "right").iterdir())

each_set = pytest.mark.parametrize("labelled", SETS, ids=lambda labelled: labelled.folder.name)


def named(path: Path) -> str:
    return str(path.relative_to(HERE).with_suffix(""))


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")


def family(path: Path) -> str:
    match = re.match(r"(?:not_)?ins([1-6])\d\d_", path.name)
    assert match, path.name
    return match[1]


def trap(source: str) -> int | None:
    match = TOPIC.fullmatch(source.splitlines()[0])
    assert match, source.splitlines()[0]
    assert match["code"] is None or match["code"] in CODES
    return None if match["trap"] is None else int(match["trap"])


def names_one_finding(found: list[Label], code: str) -> bool:
    """Say whether there is one `expect`, or several `expect-one`, and the code is among them."""
    kinds = Counter(label.kind for label in found)
    codes = frozenset().union(*(label.codes for label in found))
    one = kinds == {"expect": 1} or (set(kinds) == {"expect-one"} and kinds["expect-one"] > 1)
    return one and code in codes and codes <= CODES


@pytest.mark.parametrize(
    ("labelled", "path"),
    [(labelled, path) for labelled in SETS for path in labelled.wrong + labelled.right],
    ids=lambda value: named(value) if isinstance(value, Path) else "",
)
def test_a_loop_parses_and_is_short(labelled, path):
    ast.parse(text(path))
    assert labelled.shortest <= len(text(path).splitlines()) <= labelled.longest


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_a_wrong_loop_names_one_finding(path):
    assert names_one_finding(labels(text(path)), path.name[:6].upper())


@pytest.mark.parametrize("path", RIGHT, ids=named)
def test_a_right_loop_says_why_it_looks_wrong(path):
    assert path.name.startswith("not_")
    number = trap(text(path))
    assert number is None or number in TRAPS
    assert is_right(text(path), line=2)


@each_set
def test_every_code_is_expected_by_files_of_its_name(labelled):
    assert len(CODES) == 30
    counted = Counter(path.name[:6].upper() for path in labelled.wrong)
    assert set(counted) == CODES
    assert min(counted.values()) >= labelled.per_code


@each_set
def test_every_family_has_its_loops(labelled):
    for paths in (labelled.wrong, labelled.right):
        counted = Counter(map(family, paths))
        assert set(counted) == set(FAMILIES)
        assert min(counted.values()) >= labelled.per_family


@each_set
def test_every_trap_is_there(labelled):
    assert {trap(text(path)) for path in labelled.right} - {None} == set(TRAPS)


@each_set
def test_the_readme_lists_every_file(labelled):
    readme = (labelled.folder / "README.md").read_text()
    listed = re.findall(r"^\| `(\w+/\w+\.py)` \|", readme, re.MULTILINE)
    files = labelled.wrong + labelled.right
    assert listed == [str(path.relative_to(labelled.folder)) for path in files]


def test_the_sets_share_no_loop():
    first, second = (
        {ast.dump(ast.parse(text(path))) for path in (*one.wrong, *one.right)} for one in SETS
    )
    assert not first & second


@pytest.mark.parametrize(
    ("path", "block"), BLOCKS, ids=[f"{path.stem}-{block.line}" for path, block in BLOCKS]
)
def test_a_block_of_an_article_parses_and_is_labelled(path, block):
    ast.parse(block.source)
    if is_right(block.source):
        return
    found = labels(block.source)
    assert {label.kind for label in found} - {"may"}, "a block has labels, or expects nothing"
    groups = Counter(label.codes for label in found if label.kind == "expect-one")
    assert all(count > 1 for count in groups.values())
    assert frozenset().union(*(label.codes for label in found)) <= CODES


def test_articles_have_wrong_and_right_blocks():
    readme = (HERE / "articles" / "README.md").read_text()
    assert re.findall(r"^\| `(\w+\.md)` \|", readme, re.MULTILINE) == [p.name for p in ARTICLES]
    for path in ARTICLES:
        assert len({is_right(block.source) for block in blocks(path.read_text())}) == 2


@pytest.mark.parametrize("folder", WRONG_PROJECTS + RIGHT_PROJECTS, ids=named)
def test_a_project_parses_and_has_files(folder):
    files = sorted(folder.rglob("*.py"))
    assert len(files) > 2
    for path in files:
        ast.parse(text(path))
    readme = (PROJECTS / "README.md").read_text()
    assert f"| `{folder.relative_to(PROJECTS)}` |" in readme


@pytest.mark.parametrize("folder", WRONG_PROJECTS, ids=named)
def test_a_wrong_project_names_one_finding(folder):
    found = [label for path in sorted(folder.rglob("*.py")) for label in labels(text(path))]
    assert names_one_finding(found, folder.name[:6].upper())


@pytest.mark.parametrize("folder", RIGHT_PROJECTS, ids=named)
def test_a_right_project_says_why_it_looks_wrong(folder):
    assert folder.name.startswith("not_")
    starts = [path for path in folder.glob("*.py") if is_right(text(path), line=2)]
    assert len(starts) == 1
    assert trap(text(starts[0])) in TRAPS
    others = [path for path in folder.rglob("*.py") if path not in starts]
    assert not any(labels(text(path)) for path in others)
