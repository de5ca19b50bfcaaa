"""Parsing that always comes back: with a tree, or with the reason why there is none."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.check.problems import Kind

MAX_LINES = 50_000
"""More are not followed: code written by hand is nowhere near."""
MAX_BYTES = 8 << 20
MAX_DEPTH = 300
"""Levels of a syntax tree; a longer chain of `elif` or `+` is not followed."""
_SANE_RECURSION = 3000  # the C parser scales its own stack check by it, and overflows beyond


class Fault(NamedTuple):
    """What is wrong with a text, and where in it."""

    kind: Kind
    what: str
    line: int
    column: int | None = None


# Statements that Python 2 reads and Python 3 does not, as they look on the line of the error.
_PYTHON_2 = re.compile(
    r"""^\s*print\s+(?![=.,\[(]|in\b|is\b|and\b|or\b|if\b)\S   # print x
      | ^\s*print\s*$
      | ^\s*exec\s+[\w"']
      | \bexcept\s+[\w.()\s,]+,\s*\w+\s*:                        # except E, e:
      | ^\s*raise\s+[\w.]+\s*,
      | \b(?:0[xX][\da-fA-F]+|\d+)[lL]\b                         # 10L
      | (?<![\w.])0[0-7]+\b                                      # 0755
      | <>
      | `[^`]+`
      | \b[uU][rR]["']
      | \blambda\s*\(.*\)\s*:
      | \bdef\s+\w+\(.*\(.*\).*\)\s*:
    """,
    re.VERBOSE,
)
_PRINTS = re.compile(r"""^[ \t]*print[ \t]+["'\w%]""", re.MULTILINE)


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
        with warnings.catch_warnings(), _sane_recursion():
            warnings.simplefilter("ignore")  # invalid escapes are for others to report
            tree = ast.parse(text)
    except SyntaxError as error:
        return _syntax_fault(text, error)
    except (RecursionError, MemoryError):
        return _too_deep(1)
    except ValueError as error:  # lone surrogates, from an encoding that makes them
        return Fault("undecodable", f"it is no valid text ({error}).", 1)
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
    misindented = isinstance(error, IndentationError) and _PRINTS.search(text)
    if misindented or "in call to 'print'" in message or _PYTHON_2.search(content):
        return Fault("python-2", "it is written in Python 2.", line)
    column = len(content[: max((error.offset or 1) - 1, 0)].encode("utf-8", "replace"))
    return Fault("syntax-error", f"{message.rstrip('.')}.", line, column)


def _deepest(tree: ast.Module) -> int | None:
    """Return a line on which the tree is too deep, or None. It takes level after level, because
    going down is what must not be done.
    """
    level: list[ast.AST] = [tree]
    line = 1
    for _ in range(MAX_DEPTH):
        below: list[ast.AST] = []
        for node in level:
            for field in node._fields:
                value = getattr(node, field, None)
                if isinstance(value, list):
                    below.extend(item for item in value if isinstance(item, ast.AST))
                elif isinstance(value, ast.AST) and value._fields:  # a context has none
                    below.append(value)
        if not below:
            return None
        level = below
        line = getattr(level[0], "lineno", line)
    return line


@contextmanager
def _sane_recursion() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    if limit > _SANE_RECURSION:
        sys.setrecursionlimit(_SANE_RECURSION)  # RecursionError if we are that deep already
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
