"""Markdown for the tables, and the place in the README where they go."""

import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

README = Path(__file__).parent / "README.md"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. A cell must not contain a line break; a bar in it is escaped."""
    lines = [_line(header), _line(["---"] * len(header))]
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row of {len(row)} cells under {len(header)} headings: {row}")
        lines.append(_line(row))
    return "\n".join(lines)


def versions(packages: Iterable[str]) -> str:
    """`Python 3.11.7, torch 2.13.0, …` with the word "missing" where a package is not installed."""
    found = [f"Python {platform.python_version()}"]
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} missing")
    return ", ".join(found)


def replace_section(text: str, name: str, body: str) -> str:
    """Put `body` between the markers of section `name`. Exactly one pair of markers must exist."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"expected one '{begin}' followed by one '{end}'")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{body.strip()}\n\n{end}{after}"


def write_section(name: str, body: str, readme: Path = README) -> None:
    """Replace a section of the README on disk."""
    text = readme.read_text(encoding="utf-8")
    readme.write_text(replace_section(text, name, body), encoding="utf-8")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
