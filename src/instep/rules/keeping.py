"""Losses that are kept, as the source writes it: which part of a statement is the loss."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.rules.edits import replace
from instep.rules.spelling import is_atom
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.edits import Edits
    from instep.rules.source import Source


def detached(source: Source, statement: ast.stmt, loss: str | None) -> Edits | None:
    r"""Write `.detach()` behind the loss that a statement keeps.

    A number from `.item()` would do as well, but waits for the device, and what reads the sum
    later may expect a tensor.

    >>> from instep.rules.source import Source
    >>> tree = ast.parse("total += loss")
    >>> detached(Source("total += loss", tree, {}), tree.body[0], "loss")[0].text
    'loss.detach()'
    """
    values = list(_kept(statement))
    named = [
        node
        for value in values
        for node in walk(value)
        if isinstance(node, ast.Name | ast.Attribute) and source.code(node) == loss
    ]
    whole = named or values[:1]
    if not whole:
        return None
    return tuple(edit for node in whole for edit in _detach(source, node))


def _detach(source: Source, node: ast.expr) -> Edits:
    code = source.code(node)
    return replace(node, f"{code}.detach()" if is_atom(node) else f"({code}).detach()")


def _kept(statement: ast.stmt) -> Iterator[ast.expr]:
    """Give what a statement stores: what is added, assigned, appended or put into a dict."""
    match statement:
        case ast.AugAssign(value=value):
            yield value
        case ast.Assign(value=ast.BinOp(left=left, right=right), targets=[target]):
            # Of `total = total + loss` only the second is new.
            known = ast.dump(target).replace("Store()", "Load()")
            yield from (side for side in (right, left) if ast.dump(side) != known)
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            yield value
        case ast.Expr(value=ast.Call(args=args, keywords=keywords)):
            yield from reversed(args)
            yield from (word.value for word in keywords)
