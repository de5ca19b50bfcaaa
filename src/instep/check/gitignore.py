"""Patterns as git reads them from .gitignore: negation, anchors, `**`, folders.

https://git-scm.com/docs/gitignore
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEVER = "(?!)"
_POSIX = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "space": r" \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


@dataclass(frozen=True, slots=True)
class _Pattern:
    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


@dataclass(frozen=True)
class Patterns:
    """The patterns of one file; the last one that matches decides.

    >>> patterns = Patterns.of(["*.py", "!keep.py", "/build/", "docs/**/old"])
    >>> patterns.verdict("a/b.py"), patterns.verdict("a/keep.py"), patterns.verdict("a/b.md")
    (True, False, None)
    >>> patterns.verdict("build", is_folder=True), patterns.verdict("a/build", is_folder=True)
    (True, None)
    """

    patterns: tuple[_Pattern, ...]

    @classmethod
    def of(cls, lines: Iterable[str]) -> Patterns:
        """Read patterns from lines; those that git would not understand match nothing."""
        found = (_pattern(line) for line in lines)
        return cls(tuple(pattern for pattern in found if pattern is not None))

    @classmethod
    def of_text(cls, text: str) -> Patterns:
        """Read the patterns of a .gitignore file."""
        return cls.of(line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))

    def verdict(self, path: str, *, is_folder: bool = False) -> bool | None:
        """Say whether a path, relative to the patterns' folder, is out (True), explicitly in
        (False), or not spoken of (None). The folders above it are not looked at.
        """
        for pattern in reversed(self.patterns):
            if (is_folder or not pattern.folders_only) and pattern.regex.match(path):
                return not pattern.negated
        return None


@lru_cache(maxsize=4096)
def _pattern(line: str) -> _Pattern | None:
    text = _trimmed(line)
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text[negated:]
    folders_only = text.endswith("/")
    if folders_only:
        text = text[:-1]
    if not text:
        return None
    anchored = "/" in text
    text = text.removeprefix("/")
    body = _translated(text)
    regex = body if anchored else f"(?:.*/)?{body}"
    return _Pattern(re.compile(rf"{regex}\Z", re.DOTALL), negated, folders_only)


def _trimmed(line: str) -> str:
    """Drop spaces from the end, unless a backslash stands before them."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and len(bare) < len(line) else bare


def _translated(glob: str) -> str:
    """Turn a glob into a regular expression over a whole relative path."""
    out = []
    at = 0
    while at < len(glob):
        char = glob[at]
        if char == "*":
            stars = len(glob) - at - len(glob[at:].lstrip("*"))
            part, used = _stars(glob, at, stars)
            out.append(part)
            at += used
        elif char == "?":
            out.append("[^/]")
            at += 1
        elif char == "[":
            part, at = _bracket(glob, at)
            out.append(part)
        elif char == "\\":
            out.append(re.escape(glob[at + 1]) if at + 1 < len(glob) else _NEVER)
            at += 2
        else:
            out.append(re.escape(char))
            at += 1
    return "".join(out)


def _stars(glob: str, at: int, stars: int) -> tuple[str, int]:
    """Return what a run of asterisks means, and how much of the glob that takes."""
    after = glob[at + stars : at + stars + 1]
    alone = stars > 1 and (at == 0 or glob[at - 1] == "/")
    if alone and after == "/":
        return "(?:.*/)?", stars + 1  # any number of folders, none included
    if alone and not after:
        return ".*", stars
    return "[^/]*", stars


def _bracket(glob: str, at: int) -> tuple[str, int]:
    """Translate a character class; one that is never closed matches nothing."""
    start = at + 1
    negated = glob[start : start + 1] in {"!", "^"}
    here = start + negated
    parts: list[str] = []
    first = True
    while here < len(glob) and (glob[here] != "]" or first):
        first = False
        if named := re.compile(r"\[:(\w*):\]").match(glob, here):
            if named[1] not in _POSIX:
                return _NEVER, len(glob)
            parts.append(_POSIX[named[1]])
            here = named.end()
            continue
        low, here = _class_char(glob, here)
        high = low
        if glob[here : here + 1] == "-" and glob[here + 1 : here + 2] not in {"]", ""}:
            high, here = _class_char(glob, here + 1)
        if low <= high:
            parts.append(f"{re.escape(low)}-{re.escape(high)}")
    if here >= len(glob):
        return _NEVER, len(glob)
    inside = "".join(parts)
    if negated:
        return f"[^/{inside}]", here + 1
    return (f"(?!/)[{inside}]" if inside else _NEVER), here + 1


def _class_char(glob: str, at: int) -> tuple[str, int]:
    if glob[at] == "\\" and at + 1 < len(glob):
        return glob[at + 1], at + 2
    return glob[at], at + 1
