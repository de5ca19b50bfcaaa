"""Edits that leave a source looking as if its writer had made them.

Each function returns edits, or None where the outcome would be wrong or ugly.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeAlias

from instep.rules.comments import first_line, heading
from instep.rules.deletion import delete
from instep.rules.finding import Edit
from instep.rules.layout import Spot, span
from instep.rules.source import end_of, start_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.rules.source import Source

__all__ = [
    "Edits",
    "are_apart",
    "delete",
    "insert",
    "move",
    "position",
    "replace",
    "replace_bracketed",
]

Edits: TypeAlias = tuple[Edit, ...]

_COMPOUND = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar,
    ast.Match, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
)  # fmt: skip


def replace(node: ast.AST, text: str) -> Edits:
    """Write something else in the place of a node."""
    return (span(start_of(node), end_of(node), text),)


def replace_bracketed(source: Source, node: ast.AST, text: str) -> Edits:
    """Write something else in the place of a node and of the parentheses around it, if any."""
    start, end = start_of(node), end_of(node)
    if source.is_bracketed(node):
        before = source.layout.lines[start.line - 1][: start.column]
        after = source.layout.lines[end.line - 1][end.column :]
        start = start._replace(column=before.rindex(b"("))
        end = end._replace(column=end.column + after.index(b")") + 1)
    return (span(start, end, text),)


def insert(source: Source, at: ast.stmt, code: str, *, after: bool = False) -> Edits | None:
    r"""Put statements before or after a statement, in its block.

    >>> from instep.rules.source import Source
    >>> text = "for x in xs:\n    loss.backward()  # sums\n"
    >>> tree = ast.parse(text)
    >>> insert(Source(text, tree, {}), tree.body[0].body[0], "optimizer.zero_grad()")
    (Edit(line=2, column=0, end_line=2, end_column=0, text='    optimizer.zero_grad()\n'),)
    """
    if source.is_elif(at):
        return None
    if not source.stands_alone(at):
        return _insert_inline(at, code, after=after)
    indent = source.indent(at)
    lines = "\n".join(indent + line if line else line for line in code.split("\n"))
    return (_insert_lines(source, at, lines, after=after),)


def move(
    source: Source, statements: Sequence[ast.stmt], at: ast.stmt, *, after: bool = False
) -> Edits | None:
    """Move statements of one block, with their comments, before or after another statement."""
    if source.is_elif(at) or any(source.is_elif(moved) for moved in statements):
        return None
    if source.stands_alone(at):
        indent = source.indent(at)
        text = "\n".join(_moved(source, moved, indent) for moved in statements)
        put: Edits | None = (_insert_lines(source, at, text, after=after),)
    else:
        if any(isinstance(m, _COMPOUND) or _comment_after(source, m) for m in statements):
            return None
        put = _insert_inline(at, "; ".join(map(source.code, statements)), after=after)
    for tidy in (True, False):
        taken = delete(source, *statements, tidy=tidy)
        if put is not None and taken is not None and are_apart(put + taken):
            return put + taken
    return None


def are_apart(edits: Sequence[Edit]) -> bool:
    """Whether no two edits change the same text."""
    last = Spot(0, 0)
    for edit in sorted(edits, key=position):
        if Spot(edit.line, edit.column) < last:
            return False
        last = Spot(edit.end_line, edit.end_column)
    return True


def position(edit: Edit) -> tuple[int, int, int, int]:
    """Return what edits are sorted by; those at one spot keep their order."""
    return edit.line, edit.column, edit.end_line, edit.end_column


def _insert_lines(source: Source, at: ast.stmt, lines: str, *, after: bool) -> Edit:
    layout = source.layout
    if not after:
        spot = Spot(heading(source, at), 0)
        return span(spot, spot, f"{lines}\n")
    last = end_of(at).line
    indent = source.indent(at)
    # Comments at the end of its block are a part of it, though not of the tree.
    line = last + 1
    while isinstance(at, _COMPOUND) and (layout.is_comment(line) or layout.is_blank(line)):
        if line > len(layout.lines):
            break
        deeper = layout.indent(line)
        if layout.is_comment(line):
            if not (deeper.startswith(indent) and len(deeper) > len(indent)):
                break
            last = line
        line += 1
    spot = layout.after(last)
    return span(spot, spot, layout.insertion(spot, lines))


def _insert_inline(at: ast.stmt, code: str, *, after: bool) -> Edits | None:
    if "\n" in code or isinstance(at, _COMPOUND):
        return None
    spot = end_of(at) if after else start_of(at)
    return (span(spot, spot, f"; {code}" if after else f"{code}; "),)


def _moved(source: Source, statement: ast.stmt, indent: str) -> str:
    if not source.stands_alone(statement):
        return indent + source.code(statement)
    old = source.indent(statement)
    quoted = source.layout.marks(end_of(statement).line).quoted
    lines = []
    for number in range(first_line(source, statement), end_of(statement).line + 1):
        line = source.layout.line(number)
        if number not in quoted and line.startswith(old):
            line = indent + line[len(old) :] if line.strip() else ""
        lines.append(line)
    return "\n".join(lines)


def _comment_after(source: Source, statement: ast.stmt) -> bool:
    return source.stands_alone(statement) and (
        source.layout.comment(end_of(statement).line) is not None
    )
