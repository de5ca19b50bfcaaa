"""Reading the labels of the sets: which code is expected on which line."""

from __future__ import annotations

import io
import re
import tokenize
from typing import NamedTuple

CODES = {
    f"INS{family}{number:02}"
    for family, count in {1: 6, 2: 7, 3: 8, 4: 2, 5: 3, 6: 4}.items()
    for number in range(1, count + 1)
}
NOTHING = "# expect: nothing"

_LABEL = re.compile(r"# (?P<kind>expect|expect-one|may): (?P<codes>INS\d{3}(?:\|INS\d{3})*)")
_MEANT = re.compile(r"\bexpect\b|\bmay:")


class Label(NamedTuple):
    """`kind` is expect, expect-one or may; `line` counts from 1 in the text that was read."""

    kind: str
    codes: frozenset[str]
    line: int


class Block(NamedTuple):
    """A fenced Python block of a Markdown text; `line` is the line before its first one."""

    source: str
    line: int


def comments(source: str) -> list[tokenize.TokenInfo]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token for token in tokens if token.type == tokenize.COMMENT]


def marks(source: str) -> list[tokenize.TokenInfo]:
    """Comments that are meant as labels, well-formed or not."""
    return [token for token in comments(source) if _MEANT.search(token.string)]


def labels(source: str) -> list[Label]:
    """Every label of a wrong loop, in order; a malformed one is an AssertionError."""
    found = []
    for mark in marks(source):
        line = mark.start[0]
        assert mark.line[: mark.start[1]].strip(), f"line {line}: a label follows code on its line"
        for part in mark.string.split("  "):
            label = _LABEL.fullmatch(part)
            assert label, f"line {line}: {mark.string}"
            found.append(Label(label["kind"], frozenset(label["codes"].split("|")), line))
    return found


def is_right(source: str, line: int = 1) -> bool:
    """Say whether the only label is `expect: nothing`, on a line of its own."""
    return [(mark.string, mark.start) for mark in marks(source)] == [(NOTHING, (line, 0))]


def blocks(markdown: str) -> list[Block]:
    """Every fenced Python block, without the indent of its fence."""
    found = []
    lines = markdown.splitlines()
    starts = [n for n, text in enumerate(lines) if text.strip() == "```python"]
    for start in starts:
        indent = len(lines[start]) - len(lines[start].lstrip())
        end = next(n for n in range(start + 1, len(lines)) if lines[n].strip() == "```")
        source = "\n".join(text[indent:] for text in lines[start + 1 : end])
        found.append(Block(source + "\n", start + 1))
    return found
