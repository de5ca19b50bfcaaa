"""Parsing that always comes back: with a tree, or with the reason why there is none."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from instep.check.problems import Kind

MAX_LINES = 50_000
"""More are not followed: code written by hand is nowhere near."""
MAX_BYTES = 8 << 20
MAX_DEPTH = 300
"""Levels of a syntax tree; a longer chain of `elif` or `+` is not followed."""
_SANE_RECURSION = 3000  # the C parser scales its own stack check by it, and overflows beyond
# Python 3.11 allows three levels of a tree for each call that the recursion limit allows, so it can
# count them while it parses; later versions have a limit of their own, which is too high.
_COUNTS_LEVELS = sys.version_info < (3, 12)
_LEVELS_PER_CALL = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a text, and where in it."""

    kind: Kind
    what: str
    line: int
    column: int | None = None


# Statements that Python 2 reads and Python 3 does not, as they look on the line of the error.
_PYTHON_2 = r"""^\s*print\s+(?![=.,\[(]|in\b|is\b|and\b|or\b|if\b)\S   # print x
      | ^\s*print\s*$
      | ^\s*exec\s+[\w"']
      | \bexcept\s+[\w.()\s,]+,\s*\w+\s*:                        # except E, e:
      | ^\s*raise\s+[\w.]+\s*,
      | \b(?:0[xX][\da-fA-F]+|\d+)[lL]\b                         # 10L
      | (?<![\w.:/-])0[0-7]+\b(?![:/-])                          # 0755, in no date or time
      | <>
      | `[^`]+`
      | \b[uU][rR]["']
      | \blambda\s*\(.*\)\s*:
      | \bdef\s+\w+\(.*\(.*\).*\)\s*:
    """
_PRINTS = r"""^[ \t]*print[ \t]+["'\w%]"""


def parse(text: str) -> ast.Module | Fault:
    """Parse, without a warning, a crash or an exception.

    >>> parse("print 'epoch', epoch").kind
    'python-2'
    >>> parse("-" * 5000 + "1").kind
    'too-deep'
    """
    if fault := _unfit(text):
        return fault
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are for others to report
            return _shallow(text)
    except SyntaxError as error:
        return _syntax_fault(text, error)
    except (RecursionError, MemoryError):
        return _too_deep(1)
    except ValueError as error:  # lone surrogates, from an encoding that makes them
        return Fault("undecodable", f"it is no valid text ({error}).", 1)


def _shallow(text: str) -> ast.Module | Fault:
    """Parse, and see that the tree is not too deep to go down in it."""
    if _COUNTS_LEVELS:
        try:
            with _recursion(_frames() + MAX_DEPTH // _LEVELS_PER_CALL):
                return ast.parse(text)
        except RecursionError:
            pass  # once more, to find the line
    with _recursion(min(sys.getrecursionlimit(), _SANE_RECURSION)):
        tree = ast.parse(text)
    line = _deepest(tree)
    return tree if line is None else _too_deep(line)


def _unfit(text: str) -> Fault | None:
    null = text.find("\0")
    if null >= 0:
        return Fault("null-bytes", "it holds a null byte.", text.count("\n", 0, null) + 1)
    lines = text.count("\n")
    if lines > MAX_LINES:
        return Fault("too-large", f"it has {lines:,} lines; at most {MAX_LINES:,} are read.", 1)
    if len(text) > MAX_BYTES:
        return Fault("too-large", f"it has {len(text):,} characters.", 1)
    return None


def _too_deep(line: int) -> Fault:
    return Fault("too-deep", f"code is nested more than {MAX_DEPTH} levels deep.", line)


def _syntax_fault(text: str, error: SyntaxError) -> Fault:
    lines = text.split("\n")
    line = min(max(error.lineno or 1, 1), len(lines))
    content = lines[line - 1]
    message = error.msg or "invalid syntax"
    if "too many nested" in message or "too many levels" in message:
        return _too_deep(line)
    misindented = isinstance(error, IndentationError) and re.search(_PRINTS, text, re.MULTILINE)
    if misindented or "in call to 'print'" in message or re.search(_PYTHON_2, content, re.VERBOSE):
        return Fault("python-2", "it is written in Python 2.", line)
    column = len(content[: max((error.offset or 1) - 1, 0)].encode("utf-8", "replace"))
    return Fault("syntax-error", f"{message.rstrip('.')}.", line, column)


def _deepest(tree: ast.Module) -> int | None:
    """Return a line on which the tree is too deep, or None. It takes level after level, because
    going down is what must not be done.
    """
    level: list[ast.AST | None] = [tree]
    line = 1
    for _ in range(MAX_DEPTH):
        below: list[ast.AST | None] = []
        for node in level:
            for field in _below[type(node)]:
                value = getattr(node, field, None)
                if type(value) is list:
                    below += value
                elif value is not None:
                    below.append(value)
        if not below:
            return None
        level = below
        line = next((found for each in level if (found := getattr(each, "lineno", None))), line)
    return line


class _Below(dict[type, tuple[str, ...]]):
    """The fields of each kind of node that other nodes are in; of those without any, none."""

    def __missing__(self, kind: type) -> tuple[str, ...]:
        fields: tuple[str, ...] = () if kind is ast.Constant else getattr(kind, "_fields", ())
        names = self[kind] = tuple(name for name in fields if name not in _NO_NODES)
        return names


_NO_NODES = frozenset(
    {"arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "kwd_attrs", "level"}
    | {"lineno", "module", "op", "ops", "rest", "simple", "tag", "type_comment"}
)
_below = _Below()


def _frames() -> int:
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # `inspect` would read source files
    count = 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


@contextmanager
def _recursion(limit: int) -> Iterator[None]:
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)  # RecursionError if we are that deep already
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)
