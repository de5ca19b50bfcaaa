"""Functions of a schedule: whether the first value, that for 0, may be skipped on purpose."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

from instep.check.execute.levels import goes_down
from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.check.execute.program import Module

_SOME = math.nan
"""A number that somebody else's name stands for, hardly zero."""
_OF_ZERO = {"cos": 1.0, "exp": 1.0, "sin": 0.0, "sqrt": 0.0}
_MOST = 64
"""Numbers in a power that are still computed."""
_LARGE = 1e300
"""What is larger may be no `float`."""


def may_be_skipped(node: ast.expr | None, module: Module) -> bool:
    """Say whether a function of a schedule may give zero first, or the same as next: it does, or
    it chooses between values, or what it computes cannot be seen.
    """
    match node:
        case ast.Lambda():
            return _may(node)
        case ast.Name():
            found = module.read(_functions, module.tree).get(node.id)
            return found is None or _may(found)
    return True


def _functions(tree: ast.Module, _module: Module) -> dict[str, ast.Lambda | ast.FunctionDef]:
    """Return the functions of a text by their names."""
    found: dict[str, ast.Lambda | ast.FunctionDef] = {}
    for node in walk(tree):
        match node:
            case ast.FunctionDef():
                found[node.name] = node
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as function):
                found[name] = function
    return found


def _may(function: ast.Lambda | ast.FunctionDef) -> bool:
    """Say whether a function that is given 0 first may give nothing that is missed.

    >>> [_may(ast.parse(f"lambda s: {text}", mode="eval").body) for text in (
    ...     "1.0", "s / 5", "min(1, s / 5)", "s * 0.1", "schedule(s)", "s / w if s < w else 1",
    ...     "1 - max(0, s - start) / n")]
    [True, True, True, True, True, True, True]
    >>> [_may(ast.parse(f"lambda s: {text}", mode="eval").body) for text in (
    ...     "0.9 ** s", "1 - s / n", "max(0, 1 - s / n) ** 0.9", "1 / (1 + rate * s)",
    ...     "0.5 * (1 + math.cos(math.pi * s / n))", "rate * gamma ** s", "min(1, (s + 1) / n)")]
    [False, False, False, False, False, False, False]
    """
    arguments = [*function.args.posonlyargs, *function.args.args]
    body = function.body if isinstance(function, ast.Lambda) else _returned(function)
    if body is None or not arguments or isinstance(body, ast.Constant):
        return True
    first = _at_zero(body, arguments[0].arg)
    return first is None or first == 0


def _returned(function: ast.FunctionDef) -> ast.expr | None:
    """Return what a function of one statement returns."""
    match function.body:
        case [ast.Return(value=value)]:
            return value
        case [ast.Expr(value=ast.Constant()), ast.Return(value=value)]:
            return value  # below a docstring
    return None


@goes_down
def _at_zero(node: ast.expr, name: str) -> float | None:
    """Return what an expression is where a name is 0; None if that cannot be told."""
    found: float | None = None
    match node:
        case ast.Constant(value=int() | float() as number) if abs(number) < _LARGE:
            found = float(number)
        case ast.Name():
            found = 0.0 if node.id == name else _SOME
        case ast.Attribute():
            found = _SOME
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = _combined(ast.Sub(), 0.0, _at_zero(operand, name))
        case ast.BinOp():
            found = _combined(node.op, _at_zero(node.left, name), _at_zero(node.right, name))
        case ast.Call(args=arguments, keywords=[]):
            called = str(getattr(node.func, "attr", None) or getattr(node.func, "id", ""))
            found = _applied(called, [_at_zero(argument, name) for argument in arguments])
    return found


def _applied(function: str, given: list[float | None]) -> float | None:
    """Return what a function makes of numbers."""
    values = [value for value in given if value is not None]
    if not values or len(values) < len(given):
        return None
    known = [value for value in values if not math.isnan(value)]
    found: float | None = None
    if function in {"float", "int"}:
        found = values[0]
    elif function == "min":
        found = min(known) if len(known) == len(values) or 0 in known else _SOME
    elif function == "max":
        found = max(known) if len(known) == len(values) else None
    elif values == [0]:
        found = _OF_ZERO.get(function)
    return found


def _combined(op: ast.operator, left: float | None, right: float | None) -> float | None:
    """Return what two numbers make."""
    found: float | None = None
    if left is None or right is None:
        return found
    match op:
        case ast.Add():
            found = left + right
        case ast.Sub():
            found = left - right
        case ast.Mult():
            found = 0.0 if 0 in {left, right} else left * right
        case ast.Div() | ast.FloorDiv() | ast.Mod() if left == 0 and right != 0:
            found = 0.0
        case ast.Div() if right:
            found = left / right
        case ast.Pow():
            found = _power(left, right)
    return found


def _power(left: float, right: float) -> float | None:
    if right == 0:
        return 1.0
    if math.isnan(left) or math.isnan(right):
        return _SOME if left else None
    if left == 0:
        return 0.0 if right > 0 else None
    if left < 0:
        return None
    return float(left**right) if max(left, abs(right)) < _MOST else _SOME
