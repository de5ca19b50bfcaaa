"""Comments that silence findings, as they stand in a text.

    loss.backward()  # instep: ignore[unscaled-accumulation]
    optimizer.step()  # noqa: INS101

`# instep: ignore` and `# noqa` silence every rule on their line, `# instep: skip-file` the file.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from instep.trace.pattern import pattern
from instep.trace.plain import dataclass
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.finding import Finding

_DIRECTIVE = (
    r"#\s*instep:\s*(?:(?P<skip>skip-file)\b|(?P<ignore>ignore)\b(?![-\w])\s*(?:\[(?P<own>[^\]]*)\])?"
    r"|(?P<word>[\w-]+))"
    r"|#\s*(?P<noqa>noqa)\b(?:\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*))?"
)
_HIDDEN = "#\x1f"
"""How a comment begins that holds what is no Python: the magic or the broken cell of a notebook."""
_LIKELY = pattern(r"#\s*(?:instep:|noqa\b(?:(?!\s*:\s*[A-Z]+[0-9])|[^\n]*\bINS))", re.IGNORECASE)
"""Not what names rules of other tools alone: such comments are common, and reading them is slow."""
_STRING_OR_COMMENT = pattern(
    r'''"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"'''
    r"""|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''|'[^'\\\n]*(?:\\.[^'\\\n]*)*'"""
    r"|(?P<comment>#[^\r\n]*)",
    re.DOTALL,
)
"""Strings go first where they begin first, so that what is in one is no comment."""


@dataclass(frozen=True, slots=True)
class Suppression:
    """One comment: where it is in the unit's text, and what it names."""

    line: int
    column: int
    end_column: int
    text: str
    """As written, without what else is in the comment."""
    names: tuple[str, ...] | None
    """Names and codes; None: every rule."""
    is_noqa: bool = False


@dataclass(frozen=True, slots=True)
class Comments:
    """What the comments of a unit ask for."""

    suppressions: tuple[Suppression, ...]
    skips_file: bool
    misspelled: tuple[Suppression, ...]
    """Comments to instep that it does not understand."""


def read_comments(text: str) -> Comments:
    """Find the comments that speak to instep; what looks like one inside a string is none.

    >>> read_comments("x = 1  # instep: ignore[zero-fill, INS101]").suppressions[0].names
    ('zero-fill', 'INS101')
    """
    found: list[Suppression] = []
    misspelled: list[Suppression] = []
    skips = False
    for line, column, comment in _comments(text) if _LIKELY.search(text) else ():
        for match in re.finditer(_DIRECTIVE, comment, re.IGNORECASE):
            start = column + len(comment[: match.start()].encode("utf-8", "replace"))
            end = start + len(match[0].encode("utf-8", "replace"))
            if match["skip"]:
                skips = True
            elif comment.startswith(_HIDDEN):
                continue  # nothing is reported there
            elif match["word"]:
                misspelled.append(Suppression(line, start, end, match[0], (match["word"],)))
            else:
                is_noqa = match["noqa"] is not None
                named = match["codes"] if is_noqa else match["own"]
                names = None if named is None else tuple(re.findall(r"[^\s,]+", named))
                found.append(Suppression(line, start, end, match[0], names, is_noqa))
    return Comments(tuple(found), skips, tuple(misspelled))


def hits(
    comments: Comments, finding: Finding, lines: set[int]
) -> set[tuple[Suppression, str | None]]:
    """Return the comments on these lines that silence a finding, each with the name it does so by.

    >>> from instep.rules.finding import Finding, Severity
    >>> from instep.trace import Place
    >>> found = Finding("INS101", "missing-zero-grad", Severity.ERROR, Place("a.py", 1), "m")
    >>> [name for _, name in hits(read_comments("x = 1  # noqa: INS101"), found, {1})]
    ['INS101']
    """
    return {
        (comment, name)
        for comment in comments.suppressions
        if comment.line in lines
        for name in ((None,) if comment.names is None else comment.names)
        if name is None or name.lower() in {finding.code.lower(), finding.name.lower()}
    }


def _comments(text: str) -> Iterator[tuple[int, int, str]]:
    """Give the line, the column in bytes and the text of every comment.

    `tokenize` does the same, and takes longer than executing the file. Where quotes are nested in
    a format string, as Python 3.12 allows it, the pieces are taken for strings of their own.

    >>> [*_comments("s = '# none'  # one")]
    [(1, 14, '# one')]
    """
    line, at = 1, 0
    for match in _STRING_OR_COMMENT.finditer(text):
        if match["comment"]:
            line, at = line + text.count("\n", at, match.start()), match.start()
            begin = text.rfind("\n", 0, at) + 1
            yield line, len(text[begin:at].encode("utf-8", "replace")), match["comment"]


def ends_of_statements(tree: ast.Module) -> dict[int, tuple[int, int]]:
    """Map the lines of every statement that has several (of a block: of its head) to the first and
    the last of them.
    """
    ends = {}
    for node in walk(tree):
        if isinstance(node, ast.stmt):
            last = _head_end(node)
            if last > node.lineno:
                ends.update(dict.fromkeys(range(node.lineno, last + 1), (node.lineno, last)))
    return ends


def _head_end(node: ast.stmt) -> int:
    if isinstance(node, ast.Match):
        return node.cases[0].pattern.lineno - 1
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return node.end_lineno or node.lineno
    decorators = getattr(body[0], "decorator_list", [])
    return min(int(item.lineno) for item in [body[0], *decorators]) - 1
