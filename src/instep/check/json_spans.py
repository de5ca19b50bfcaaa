"""Reading a notebook's JSON together with where in the file the cells' sources stand."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[[str, int], tuple[Any, int]]

_SPACE = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder(strict=False).raw_decode


@dataclass(frozen=True, slots=True)
class Span:
    """A JSON value, and the characters it is written in."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands around the items of a list: after `[`, between two, before `]`."""

    opening: str
    between: str
    closing: str


def read(whole: str) -> dict[str, Any]:
    """Read a notebook; each `source` (or `input`, in format 3) of a cell is a `Span`.

    >>> notebook = read('{"cells": [{"source": ["x"]}]}')
    >>> notebook["cells"][0]["source"]
    Span(value=['x'], start=22, end=27)
    """
    notebook, end = _object(whole, _skip(whole, int(whole.startswith("\ufeff"))), _TOP)
    if _skip(whole, end) != len(whole):
        raise json.JSONDecodeError("something follows the notebook", whole, end)
    return notebook


def items(whole: str, span: Span) -> tuple[list[tuple[str, str]], Layout | None]:
    """Return each item of a list of strings as value and as written, and the list's layout.

    >>> items('[ "a", "b" ]', Span(["a", "b"], 0, 12))
    ([('a', '"a"'), ('b', '"b"')], Layout(opening=' ', between=', ', closing=' '))
    """
    if not span.value or isinstance(span.value, str):
        return [], None
    found: list[Span] = []
    at = _skip(whole, span.start + 1)
    for _ in span.value:
        value, end = _decode(whole, at)
        found.append(Span(value, at, end))
        comma = _skip(whole, end)
        at = _skip(whole, comma + 1)
    opening = whole[span.start + 1 : found[0].start]
    between = whole[found[0].end : found[1].start] if len(found) > 1 else "," + (opening or " ")
    closing = whole[found[-1].end : span.end - 1]
    written = [(item.value, whole[item.start : item.end]) for item in found]
    return written, Layout(opening, between, closing)


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _expect(text: str, at: int, characters: str) -> str:
    if at < len(text) and text[at] in characters:
        return text[at]
    raise json.JSONDecodeError(f"expected one of {characters!r}", text, at)


def _spanned(text: str, at: int) -> tuple[Any, int]:
    value, end = _decode(text, at)
    return Span(value, at, end), end


def _object(text: str, at: int, readers: dict[str, Reader]) -> tuple[dict[str, Any], int]:
    _expect(text, at, "{")
    found: dict[str, Any] = {}
    at = _skip(text, at + 1)
    if text.startswith("}", at):
        return found, at + 1
    while True:
        _expect(text, at, '"')
        key, at = _decode(text, at)
        at = _skip(text, at)
        _expect(text, at, ":")
        found[key], at = readers.get(key, _decode)(text, _skip(text, at + 1))
        at = _skip(text, at)
        if _expect(text, at, ",}") == "}":
            return found, at + 1
        at = _skip(text, at + 1)


def _array(text: str, at: int, reader: Reader) -> tuple[list[Any], int]:
    _expect(text, at, "[")
    found: list[Any] = []
    at = _skip(text, at + 1)
    if text.startswith("]", at):
        return found, at + 1
    while True:
        value, at = reader(text, at)
        found.append(value)
        at = _skip(text, at)
        if _expect(text, at, ",]") == "]":
            return found, at + 1
        at = _skip(text, at + 1)


def _cell(text: str, at: int) -> tuple[Any, int]:
    return _object(text, at, {"source": _spanned, "input": _spanned})


def _cells(text: str, at: int) -> tuple[Any, int]:
    return _array(text, at, _cell)


def _sheet(text: str, at: int) -> tuple[Any, int]:
    return _object(text, at, {"cells": _cells})


def _sheets(text: str, at: int) -> tuple[Any, int]:
    return _array(text, at, _sheet)


_TOP: dict[str, Reader] = {"cells": _cells, "worksheets": _sheets}
