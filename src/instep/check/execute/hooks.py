"""Hooks: what somebody who is not here may do in the middle of a loop.

A trainer that others inherit from has methods that do nothing, or calls some that it does not have,
and goes through callbacks that are handed in later. Whoever writes the subclass or the callback may
well clear, unscale or step there.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import tensors
from instep.check.execute.definitions import Function, Instance
from instep.check.execute.roles import BENIGN
from instep.check.execute.scan import is_hook
from instep.check.execute.tensors import Tensor
from instep.check.execute.values import Unknown, unify

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.iterables import Source
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module, Scope
    from instep.check.execute.values import Value

_WHAT = ("backward", "batch", "grad", "iter", "optim", "step", "update", "zero")
_MOST_STATEMENTS = 2
"""Of a method that does nothing: a docstring and one more."""


def left_to_others(m: Machine, function: Function, call: Call) -> Value:
    """Return what stands for the call of a method that a subclass replaces; None: it is followed.

    Only where the object was not seen being made: one that was is of the class that it is of.
    """
    if not m.loops or not isinstance(function.code, ast.FunctionDef):
        return None
    kind = function.scope.module.read(_kind, function.code)
    is_assumed = m.assumed is not None and function.bound is m.assumed
    if kind is None or not (is_assumed or kind == "refuses"):
        return None
    name = str(function.known_as)
    if kind == "gives back":
        made = tensors.derive(m, call.node, call.inputs, call.scope)
        if isinstance(made, Tensor):
            made.parts = None
        return made
    _note(m, name, call, "is left to a subclass")
    return call.unknown(m)


def missing(m: Machine, receiver: Value, name: str, call: Call) -> None:
    """Take note of a method that an object of the project does not have, if it may be one."""
    answers = isinstance(receiver, Instance) and any(
        "__getattr__" in base.members for base in receiver.cls.mro()
    )
    if is_hook(name) or (answers and name not in BENIGN):
        _note(m, name, call, "is left to a subclass")


def unknown(m: Machine, name: str, call: Call) -> None:
    """Take note of a method of something unknown that is there for others to do something."""
    if m.loops and is_hook(name) and any(word in name for word in _WHAT):
        _note(m, name, call, "may do anything")


def handed_in(m: Machine, node: ast.For, source: Source, scope: Scope) -> None:
    """Take note of a loop that calls what it goes through, where that is unknown, or nothing: the
    loop is not there for nothing.
    """
    call = getattr(node.body[0], "value", None)
    is_called = isinstance(getattr(call, "func", None), ast.Name)
    if source.length == 0 or (is_called and type(unify(source.element(0))) is Unknown):
        text = scope.module.spelled(node.iter)
        m.note("opaque", node.iter, scope, what=text, values=None)
        m.problems.setdefault(f"`{text}` may do anything", (node, scope.module))


def _note(m: Machine, name: str, call: Call, why: str) -> None:
    call.note(m, "opaque", what=name, values=None)
    m.problem(f"`{name}` {why}", call)


def _kind(code: ast.FunctionDef, _module: Module) -> str | None:
    """Say what a method does that does nothing: nothing at all, refuse, or give back."""
    last, name = code.body[-1], code.name
    if len(code.body) > _MOST_STATEMENTS or not all(map(_is_text, code.body[:-1])):
        return None
    if isinstance(last, ast.Raise):
        return "refuses" if is_hook(name) and "NotImpl" in ast.dump(last) else None
    if isinstance(last, ast.Return) and isinstance(last.value, ast.Name):
        given = [argument.arg for argument in code.args.args[1:]]
        return "gives back" if last.value.id in given else None
    ends = isinstance(last, ast.Return) and (
        last.value is None or (isinstance(last.value, ast.Constant) and last.value.value is None)
    )
    nothing = isinstance(last, ast.Pass) or _is_text(last) or ends
    return "nothing" if nothing and name not in BENIGN else None


def _is_text(statement: ast.stmt) -> bool:
    """Say whether a statement is a docstring or three dots."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
