"""Calls: functions and classes of the project are executed, all others have a meaning or none."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import attributes, functions, methods, models, objects, opaque, outside
from instep.check.execute.arguments import Call, given
from instep.check.execute.definitions import Class, Function, Instance, Super
from instep.check.execute.things import Net
from instep.check.execute.values import Method, Native, Ref, Thing, Unknown, unify

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.values import Value


def evaluate(m: Machine, node: ast.Call, scope: Scope) -> Value:
    """Evaluate a call."""
    func = node.func
    if isinstance(func, ast.Attribute):
        name = func.attr
        callee = _callee(m, func, m.ev(func.value, scope), scope)
    else:
        name = func.id if isinstance(func, ast.Name) else ""
        callee = m.ev(func, scope)
    args, kwargs = given(m, node, scope)
    return call(m, callee, Call(node, scope, name, args, kwargs))


def _callee(m: Machine, func: ast.Attribute, receiver: Value, scope: Scope) -> Value:
    """Return what `receiver.name(...)` calls."""
    name = func.attr
    known = unify(receiver)
    if isinstance(known, Ref):
        return Ref(f"{known.path}.{name}")
    if isinstance(known, Net):
        if _is_own(known, name, scope):
            return attributes.member(m, func, known, name, scope)
        return Method(known, name)
    if isinstance(known, Instance | Super | Class):
        return attributes.get(m, func, known, name, scope)
    if isinstance(known, Unknown) and name in known.attrs:
        stored = known.attrs[name]
        if not isinstance(stored, Unknown):
            return stored
    return Method(receiver, name)


def _is_own(net: Net, name: str, scope: Scope) -> bool:
    """Say whether a model's class replaces a method, and that one has to be followed."""
    found = attributes.find_member(net, name)
    if found is None and name not in net.attrs:
        return False
    if name not in models.NET_METHODS or net.cls is None:
        return True
    return isinstance(found, Function) and scope.module.scan.hot(found.code)


def call(m: Machine, callee: Value, call: Call) -> Value:
    """Call a value."""
    callee = unify(callee)
    result: Value
    match callee:
        case Function():
            result = functions.invoke(m, callee, call)
        case Method():
            call.name = callee.name
            result = methods.method(m, callee.receiver, call)
        case Ref():
            result = outside.call(m, callee.path, call)
        case Native():
            result = callee.call(m, call)
        case Class():
            result = objects.construct(m, callee, call)
        case Instance():
            own = attributes.find_member(callee, "__call__")
            if isinstance(own, Function):
                own = functions.bind(m, call.node, own, callee, call.scope)
                result = functions.invoke(m, own, call)
            else:
                result = opaque.unknown_call(m, str(callee.known_as), call)
        case Thing():
            result = methods.called(m, callee, call)
        case _:
            result = opaque.unknown_call(m, "", call)
    return result
