"""Everything the project shows passes `instep check`; what is wrong on purpose says so."""

import ast
import doctest
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from instep import cli
from instep.check.judge import judge, wanted
from instep.check.problems import Diagnostic
from instep.check.sources import units_from_bytes
from instep.rules.registry import rulebook

ROOT = Path(__file__).parents[2]
SHOWN = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
SHOWN += ["docs", "examples", "benchmarks", "src"]
PAGES = sorted((ROOT / "src/instep/pages").glob("*.md"))
MODULES = sorted(ROOT.glob("src/instep/**/*.py"))
_INDENTED = re.compile(r"(?:^(?: {4}.*|\s*)\n)*^ {4}.*\n", re.MULTILINE)


def found_in(source: str) -> list[str]:
    """Judge a block; what is no Python, such as a command, has nothing to judge."""
    units = units_from_bytes(source.encode(), "block.py")
    if isinstance(units, Diagnostic):
        return []
    return [f"{each.name}: {each.message}" for unit in units for each in judge(unit).findings]


def blocks_of(page: str) -> Iterator[str]:
    """Yield the indented blocks of a page, which `instep check` leaves to its reader."""
    for match in _INDENTED.finditer(page):
        yield textwrap.dedent(match[0])


def examples_of(module: str) -> Iterator[str]:
    """Yield the examples of every docstring, each docstring's as one program."""
    parser = doctest.DocTestParser()
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            yield "".join(example.source for example in parser.get_examples(text))


def test_files_and_fenced_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    # A comment that silences nothing today is one that a better reader will need.
    options = ["--no-cache", "--jobs=1", "--severity=info", "--ignore=unused-suppression"]
    code = cli.main(["check", *options, *SHOWN])
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_indented_blocks_of_pages(page: Path) -> None:
    assert [found for block in blocks_of(page.read_text()) for found in found_in(block)] == []


def test_examples_in_docstrings() -> None:
    examples = [text for module in MODULES for text in examples_of(module.read_text())]
    looked_at = [text for text in examples if wanted(text)]
    assert looked_at
    assert [found for text in looked_at for found in found_in(text)] == []


def test_right_examples_of_the_rules() -> None:
    assert [found for rule in rulebook().values() for found in found_in(rule.GOOD)] == []


def test_a_wrong_loop_would_be_found_in_each_of_these_places() -> None:
    bad = rulebook()["INS101"].BAD
    page = f"# A page\n\nLike this:\n\n{textwrap.indent(bad, '    ')}\nAnd no other way.\n"
    [block] = blocks_of(page)
    assert block.strip() == bad.strip()
    shown = "".join(
        f"{'...' if line.startswith(' ') else '>>>'} {line}\n" for line in bad.splitlines() if line
    )
    [example] = (text for text in examples_of(f'"""A module.\n\n{shown}"""\n') if text)
    for text in (block, example):
        assert [found.partition(":")[0] for found in found_in(text)] == ["missing-zero-grad"]
