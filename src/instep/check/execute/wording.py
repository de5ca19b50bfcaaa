"""Expressions as text, in one way of writing them: what `ast.unparse` would say, sooner.

Most that are asked for are names, calls and comparisons of them. `ast.unparse` goes to each part
through a visitor that minds what binds how much; here nothing is in doubt.
"""

from __future__ import annotations

import ast

_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


def words(node: ast.AST) -> str:
    """Return the source of an expression.

    >>> words(ast.parse("(step+1) % args.n==0", mode="eval").body)
    '(step + 1) % args.n == 0'
    >>> words(ast.parse("len( a ['b'] ) > 3", mode="eval").body)
    "len(a['b']) > 3"
    """
    kind = type(node)
    found = _compared(node) if kind is ast.Compare else _atom(node)  # type: ignore[arg-type]
    return ast.unparse(node) if found is None else found


def _compared(node: ast.Compare) -> str | None:
    text = _atom(node.left)
    for sign, right in zip(node.ops, node.comparators, strict=True):
        other = _atom(right)
        if text is None or other is None:
            return None
        text = f"{text} {_SIGNS[type(sign)]} {other}"
    return text


def _atom(node: ast.AST) -> str | None:
    """Return the source of what needs no brackets anywhere; None for anything else."""
    kind = type(node)
    if kind is ast.Name:
        return node.id  # type: ignore[attr-defined,no-any-return]
    if isinstance(node, ast.Attribute):
        owner = None if type(node.value) is ast.Constant else _atom(node.value)
        return None if owner is None else f"{owner}.{node.attr}"
    if isinstance(node, ast.Constant):
        plain = type(node.value) in {int, str, bool} or node.value is None
        return repr(node.value) if plain and node.kind is None else None
    if isinstance(node, ast.Call):
        return _called(node)
    if isinstance(node, ast.Subscript):
        owner, inner = _atom(node.value), _atom(node.slice)
        return None if owner is None or inner is None else f"{owner}[{inner}]"
    return None


def _called(node: ast.Call) -> str | None:
    func = _atom(node.func)
    if func is None:
        return None
    given = []
    for argument in node.args:
        text = _atom(argument)
        if text is None:
            return None
        given.append(text)
    for keyword in node.keywords:
        text = _atom(keyword.value)
        if text is None or keyword.arg is None:
            return None
        given.append(f"{keyword.arg}={text}")
    return f"{func}({', '.join(given)})"
