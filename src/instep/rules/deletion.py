"""Statements taken away, with what speaks of them alone and without a trace of blank lines."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.rules.comments import first_line
from instep.rules.layout import Spot, span
from instep.rules.source import end_of, start_of
from instep.rules.spelling import is_pure

if TYPE_CHECKING:
    from instep.rules.finding import Edit
    from instep.rules.source import Block, Source


def delete(source: Source, *statements: ast.stmt, tidy: bool = True) -> tuple[Edit, ...] | None:
    """Take statements of one block away, with comments that speak of them alone.

    A block that would be empty goes too if nothing is lost with it, or else gets a `pass`.
    """
    block = source.block(statements[0])
    if block is None or any(source.is_elif(gone) for gone in statements):
        return None
    if any(gone not in block.statements for gone in statements):
        return None
    if len(statements) == len(block.statements):
        return _empty(source, block, tidy=tidy)
    edits: list[Edit] = []
    lines: list[tuple[int, int]] = []
    for gone in statements:
        if source.stands_alone(gone):
            lines.append((first_line(source, gone), end_of(gone).line))
        else:
            inline = _delete_inline(block, gone)
            if inline is None:
                return None
            edits.append(inline)
    edits += (_delete_lines(source, *run, tidy=tidy) for run in _runs(source, lines))
    return tuple(edits)


def _delete_inline(block: Block, gone: ast.stmt) -> Edit | None:
    """Take a statement out of `a; b`."""
    at = block.statements.index(gone)
    for follower in block.statements[at + 1 : at + 2]:
        if start_of(follower).line == end_of(gone).line:
            return span(start_of(gone), start_of(follower), "")
    if at and end_of(block.statements[at - 1]).line == start_of(gone).line:
        return span(end_of(block.statements[at - 1]), end_of(gone), "")
    return None


def _runs(source: Source, lines: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans of lines that have only blank lines between them."""
    runs: list[tuple[int, int]] = []
    for first, last in sorted(lines):
        if runs and all(map(source.layout.is_blank, range(runs[-1][1] + 1, first))):
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
    return runs


def _delete_lines(source: Source, first: int, last: int, *, tidy: bool) -> Edit:
    """Take lines away, with blank lines that would be left at the edge of a block or doubled."""
    layout = source.layout
    count = len(layout.lines)
    above, below = first - 1, last + 1
    while layout.is_blank(above) and above > 0:
        above -= 1
    while layout.is_blank(below) and below <= count:
        below += 1
    width = len(layout.indent(first))
    opens = above == 0 or len(layout.indent(above)) < width
    closes = below > count or len(layout.indent(below)) < width
    if tidy and closes and 0 < above < first - 1:
        first = above + 1
    elif tidy and not closes and below > last + 1 and (opens or above < first - 1):
        last = below - 1
    if last < count:
        return span(Spot(first, 0), Spot(last + 1, 0), "")
    start = Spot(first - 1, len(layout.lines[first - 2])) if first > 1 else Spot(1, 0)
    return span(start, layout.end, "")


def _empty(source: Source, block: Block, *, tidy: bool) -> tuple[Edit, ...] | None:
    """Take all statements of a block away."""
    owner = block.owner
    if isinstance(owner, ast.stmt) and _may_go(owner):
        if not source.is_elif(owner):
            return delete(source, owner, tidy=tidy)
        if source.stands_alone(owner):
            return (_delete_lines(source, owner.lineno, end_of(owner).line, tidy=tidy),)
    first, last = block.statements[0], block.statements[-1]
    end = end_of(last)
    if source.stands_alone(last):
        end = Spot(end.line, len(source.layout.lines[end.line - 1]))
    return (span(start_of(first), end, "pass"),)


def _may_go(owner: ast.stmt) -> bool:
    """Whether a compound statement with an empty body does nothing."""
    match owner:
        case ast.If(test=asked, orelse=[]):
            return is_pure(asked)
        case ast.For(target=ast.Name(), iter=asked, orelse=[]):
            return is_pure(asked)
    return False
