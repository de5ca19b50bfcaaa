"""Finding the Python blocks of Markdown and reStructuredText, line by line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.check.lines import Line

_OPEN = re.compile(
    r"(?P<quote>(?:[ \t]*>)*)[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*"
    r"(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)$"
)
_DIRECTIVE = re.compile(
    r"(?P<indent>[ \t]*)\.\.[ \t]+(?:code-block|code|sourcecode|testcode)::[ \t]*(?P<info>.*)$"
)
_OPTION = re.compile(r"[ \t]*:[\w-]+:")
_LANGUAGE = re.compile(r"\s*\{?\.?(?P<language>[\w+-]*)\}?\s*(?P<second>[\w+-]*)")
_PYTHON = {"python", "py", "python3", "py3", "ipython", "ipython3"}
_WRAPPERS = {"code-cell", "code-block", "code"}  # MyST: ```{code-cell} ipython3


@dataclass(frozen=True, slots=True)
class Block:
    """Lines `first` to before `last` of a file (from 0), less what stands before the code."""

    first: int
    last: int
    prefixes: tuple[str, ...]
    """What each line has before its code: the indent of a list, the `>` of a quotation."""
    prefix: str
    """The same for a line that is added."""


def blocks(lines: list[Line]) -> Iterator[Block]:
    """Yield every block that is marked as Python, or not marked as anything."""
    at = 0
    while at < len(lines):
        text = lines[at].text
        if opened := _OPEN.match(text):
            end = _closing(lines, at + 1, opened["fence"])
            if _is_python(opened["info"]):
                yield from _block(lines, at + 1, end, quotes=opened["quote"].count(">"))
            at = end + 1
        elif (directive := _DIRECTIVE.match(text)) and _is_python(directive["info"]):
            at, end = _directive(lines, at + 1, len(directive["indent"]))
            yield from _block(lines, at, end, quotes=0)
            at = end
        else:
            at += 1


def _is_python(info: str) -> bool:
    found = _LANGUAGE.match(info)
    if found is None:
        return False
    word = found["language"].lower()
    if word in _WRAPPERS:
        word = found["second"].lower()
    return word in _PYTHON or not info.strip()


def _closing(lines: list[Line], at: int, fence: str) -> int:
    """Return the line of the fence that closes; an unclosed block ends with the file."""
    closing = re.compile(rf"[ \t>]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
    for end in range(at, len(lines)):
        if closing.match(lines[end].text):
            return end
    return len(lines)


def _directive(lines: list[Line], at: int, indent: int) -> tuple[int, int]:
    while at < len(lines) and _OPTION.match(lines[at].text):
        at += 1
    end = at
    for here in range(at, len(lines)):
        text = lines[here].text
        if not text.strip():
            continue
        if len(text) - len(text.lstrip()) <= indent:
            break
        end = here + 1
    return at, end


def _block(lines: list[Line], first: int, last: int, *, quotes: int) -> Iterator[Block]:
    quoted = re.compile(rf"(?:[ \t]*>){{0,{quotes}}}")
    marks = [_matched(quoted, line.text) for line in lines[first:last]]
    rest = [line.text[len(mark) :] for line, mark in zip(lines[first:last], marks, strict=True)]
    code = [text[: len(text) - len(text.lstrip(" \t"))] for text in rest if text.strip()]
    if not code:
        return
    indent = _shared(code)
    prefixes = tuple(
        mark + (indent if text.startswith(indent) else text)
        for mark, text in zip(marks, rest, strict=True)
    )
    mark = next(mark for mark, text in zip(marks, rest, strict=True) if text.strip())
    yield Block(first, last, prefixes, mark + indent)


def _matched(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.match(text)
    return "" if found is None else found[0]


def _shared(indents: list[str]) -> str:
    """Return the longest beginning that all have."""
    low, high = min(indents), max(indents)  # what these two share, all do
    same = next((at for at, char in enumerate(low) if char != high[at]), len(low))
    return low[:same]
