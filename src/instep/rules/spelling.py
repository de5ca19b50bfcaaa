"""Expressions put together as text, with parentheses where they are needed."""

from __future__ import annotations

import ast

from instep.trace.trees import walk

_ATOMS = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.Tuple, ast.List, ast.Dict,
    ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.JoinedStr,
)  # fmt: skip
_TERMS = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.MatMult, ast.Pow)
# Calls that only look: a condition or a loop over them can be dropped.
_LOOKS = {
    "len", "range", "enumerate", "zip", "int", "float", "bool", "isinstance", "hasattr", "min",
    "max", "parameters", "named_parameters", "items", "values", "keys", "tqdm", "reversed",
    "sorted",
}  # fmt: skip


def is_pure(node: ast.expr) -> bool:
    """Whether nothing happens when an expression is evaluated.

    >>> is_pure(ast.parse("(i + 1) % n == 0", mode="eval").body)
    True
    >>> is_pure(ast.parse("next(batches)", mode="eval").body)
    False
    """
    for part in walk(node):
        if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return False
        if isinstance(part, ast.Call) and called(part) not in _LOOKS:
            return False
    return True


def called(call: ast.Call) -> str:
    """Return the last name of what is called: "step" of `self.optimizer.step()`."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def receiver(call: ast.Call) -> ast.expr | None:
    """Return what a method is called on."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def is_atom(node: ast.expr) -> bool:
    """Whether an expression can stand before a dot, or on either side of any operator."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | complex):
        return True
    return isinstance(node, _ATOMS)


def dividend(node: ast.expr, code: str) -> str:
    """Return an expression so that ` / n` can follow it.

    >>> dividend(ast.parse("a + b", mode="eval").body, "a + b")
    '(a + b)'
    """
    product = isinstance(node, ast.BinOp) and isinstance(node.op, _TERMS)
    return code if product or is_atom(node) or isinstance(node, ast.UnaryOp) else f"({code})"


def operand(node: ast.expr, code: str) -> str:
    """Return an expression so that it can stand on the right of `/` or `%`.

    >>> operand(ast.parse("a * b", mode="eval").body, "a * b")
    '(a * b)'
    """
    return code if is_atom(node) else f"({code})"


def same(one: ast.AST, other: ast.AST) -> bool:
    """Whether two expressions read the same."""
    return ast.dump(one) == ast.dump(other)
