"""Names as Python binds them: whether an expression means the same in another function."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.rules.source import Source

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def means_same(source: Source, expression: ast.AST, at: ast.AST) -> bool:
    """Say whether the names of an expression are bound where another node stands as they are where
    it is written; `self` is the same in all methods of a class.
    """
    if source.scope(expression) is source.scope(at):
        return True
    names = {node.id for node in walk(expression) if isinstance(node, ast.Name)}
    for name in names:
        here, there = _binder(source, name, expression), _binder(source, name, at)
        if here is not there and not (name == "self" and _are_of_one_class(source, here, there)):
            return False
    return True


def _binder(source: Source, name: str, node: ast.AST) -> ast.AST | None:
    """Return the function that binds a name where a node stands; None: the module, or nothing."""
    for above in source.ancestors(node):
        if isinstance(above, _FUNCTIONS) and name in _bound(above):
            return above
    return None


def _bound(function: ast.AST) -> set[str]:
    bound = {node.arg for node in walk(function) if isinstance(node, ast.arg)}
    stored = (node for node in walk(function) if isinstance(node, ast.Name))
    return bound | {node.id for node in stored if isinstance(node.ctx, ast.Store)}


def _are_of_one_class(source: Source, one: ast.AST | None, other: ast.AST | None) -> bool:
    if one is None or other is None:
        return False
    owner = source.parent(one)
    return isinstance(owner, ast.ClassDef) and owner is source.parent(other)
