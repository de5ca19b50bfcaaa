"""Gradients touched by hand: `p.grad = None`, `p.grad.mul_(1 / n)`, `p.grad.norm()`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import numbers
from instep.check.execute.values import Grad, Param, Unknown, Value

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope

_CHANGES = frozenset({"add_", "sub_", "copy_", "sign_", "normal_", "addcmul_", "nan_to_num_"})


def read(m: Machine, node: ast.AST, param: Param, scope: Scope) -> None:
    """Take note that user code looks at gradients."""
    guarded = is_guarded(node, scope)
    m.note("grad-read", node, scope, param=param, guarded=guarded)


def assign(m: Machine, target: ast.Attribute, param: Param, value: Value, scope: Scope) -> None:
    """Follow `p.grad = ...` and `p.requires_grad = ...`."""
    if target.attr == "grad":
        if value is None:
            m.note("zero", target, scope, param=param, set_to_none=True)
        elif isinstance(value, Grad):
            pass
        else:
            m.note("grad-edited", target, scope, param=param, factor=None)
    elif target.attr == "requires_grad" and param.nets is not None:
        for net in param.nets:
            net.frozen = value is False and param.complete


def method(m: Machine, node: ast.Call, grad: Grad, name: str, args: list[Value], scope: Scope) -> Value:
    """Follow a method of a gradient."""
    param = grad.param
    if name in {"zero_", "fill_"}:
        m.note("zero", node, scope, param=param, set_to_none=False)
        return grad
    if name in {"mul_", "div_"}:
        m.note("grad-edited", node, scope, param=param, factor=factor(args, name))
        return grad
    if name in {"clamp_", "clip_"}:
        m.note("clip", node, scope, param=param, by="value", limit=None)
        return grad
    if name in _CHANGES:
        m.note("grad-edited", node, scope, param=param, factor=None)
        return grad
    if name in {"detach_", "detach", "requires_grad_"}:
        return grad
    return m.unknown(node, scope, f"{name}()")


def factor(args: list[Value], name: str) -> Value:
    """Return what a gradient is multiplied by: a number, a (value, power), or None."""
    if not args:
        return None
    value = args[0]
    power = -1 if name in {"div_", "Div"} else 1
    if isinstance(value, Unknown) and value.inverse is not None:
        return (value.inverse, -power)
    plain = numbers.number(value)
    if plain is not None and not isinstance(value, Unknown):
        return plain if power == 1 else (1 / plain if plain else None)
    return (value, power)


def is_guarded(node: ast.AST, scope: Scope) -> bool:
    """Say whether the code around a read asks if there is a gradient."""
    code = scope.code if scope.code is not None else scope.module.tree
    known = scope.module.guards.get(id(code))
    if known is None:
        known = scope.module.guards[id(code)] = _asks(code)
    return known or isinstance(node, ast.expr) and id(node) in scope.module.guards


def _asks(code: ast.AST) -> bool:
    """Say whether a function compares a gradient with None, or tests it, anywhere."""
    for node in ast.walk(code):
        if isinstance(node, ast.Compare | ast.If | ast.IfExp | ast.comprehension | ast.BoolOp):
            tests: list[ast.AST]
            if isinstance(node, ast.Compare):
                tests = [node] if any(_is_none(side) for side in node.comparators) else []
            elif isinstance(node, ast.comprehension):
                tests = list(node.ifs)
            elif isinstance(node, ast.BoolOp):
                tests = list(node.values)
            else:
                tests = [node.test]
            for test in tests:
                if any(isinstance(part, ast.Attribute) and "grad" in part.attr for part in ast.walk(test)):
                    return True
        elif isinstance(node, ast.ExceptHandler) or (
            isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"hasattr", "getattr"}
        ):
            return True
    return False


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
