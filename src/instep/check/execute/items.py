"""Loops over the items of a batch: what they add up is a sum over items, not a mean."""

from __future__ import annotations

import ast

from instep.trace.pattern import pattern
from instep.trace.trees import walk

_COUNT = pattern(r"^(batch_?size|bs?|B|n_samples|num_samples)$")


def adding(node: ast.For) -> frozenset[ast.AST]:
    """Return the statements of a loop that add something of an item and of its target.

    >>> loop = "for i in {}: loss += criterion(out[i], y[{}])"
    >>> len(adding(ast.parse(loop.format("range(len(out))", "i")).body[0]))
    1
    >>> len(adding(ast.parse(loop.format("range(len(out))", "0")).body[0]))
    0
    >>> len(adding(ast.parse(loop.format("range(steps)", "i")).body[0]))
    0
    """
    if not _is_over_items(node.iter):
        return frozenset()
    of_item, of_both = _names(node.target), set[str]()
    found: set[ast.AST] = set()
    for statement in (part for whole in node.body for part in walk(whole)):
        if not isinstance(statement, ast.Assign | ast.AugAssign):
            continue
        value = statement.value
        used = _names(value)
        if any(_pairs(part, of_item) for part in walk(value)) or used & of_both:
            found.add(statement)
            of_both |= _bound(statement)
        elif used & of_item:
            of_item |= _bound(statement)
    return frozenset(found)


def _bound(statement: ast.Assign | ast.AugAssign) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {name for target in targets for name in _names(target)}


def _pairs(node: ast.AST, names: set[str]) -> bool:
    """Say whether a call is given two things of one item: what was computed, and its target."""
    if not isinstance(node, ast.Call):
        return False
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    return sum(not names.isdisjoint(_names(value)) for value in given) > 1


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in walk(node) if isinstance(part, ast.Name)}


def _is_over_items(node: ast.expr) -> bool:
    """Say whether an iterable is as long as a batch: parts of it side by side, or its indices."""
    match node:
        case ast.Call(func=ast.Name(id="range"), args=[count]):
            return _is_count(count)
        case ast.Call(func=ast.Name(id="zip"), args=[_, _, *_]):
            return True
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
            return isinstance(inner, ast.Name) or _is_over_items(inner)
    return False


def _is_count(node: ast.expr) -> bool:
    """Say whether an expression counts items: `len(x)`, `x.size(0)`, `x.shape[0]`."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[_]):
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=0)]):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=0)):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _COUNT.search(name) is not None
    return False
