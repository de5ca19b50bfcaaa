"""Calls: functions and classes of the project are executed, all others have a meaning or none."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from instep.check.execute import attributes, functions, hooks, methods, models, opaque, outside
from instep.check.execute.arguments import Call, given
from instep.check.execute.definitions import Class, Function, Instance, Super
from instep.check.execute.machine import MOST_EXPRESSIONS
from instep.check.execute.things import Net
from instep.check.execute.values import Method, Native, Ref, Thing, Unknown, unify

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.values import Value

_DEFINED = frozenset({Class, Instance, Super})
_METHOD = object()
"""What is called is a method of something that is not the project's."""
CALLED: dict[type, Callable[[Machine, Any, Call], Value]] = {}
"""What follows the call of a kind of value. Filled by `tables`."""


def evaluate(m: Machine, node: ast.Call, scope: Scope) -> Value:
    """Evaluate a call."""
    func = node.func
    if type(func) is ast.Attribute:
        receiver = m.ev(func.value, scope)
        callee = _callee(m, func, receiver, scope)
        args, kwargs = given(m, node, scope)
        made = Call(node, scope, func.attr, args, kwargs)
        if type(callee) is Unknown and m.loops:
            hooks.missing(m, unify(receiver), func.attr, made)
        return methods.method(m, receiver, made) if callee is _METHOD else call(m, callee, made)
    name = func.id if isinstance(func, ast.Name) else ""
    callee = m.ev(func, scope)
    args, kwargs = given(m, node, scope)
    return call(m, callee, Call(node, scope, name, args, kwargs))


def _callee(m: Machine, func: ast.Attribute, receiver: Value, scope: Scope) -> Value:
    """Return what `receiver.name(...)` calls."""
    name = func.attr
    known = unify(receiver)
    if type(known) is Ref:
        return known.member(name)
    if type(known) is Net:
        if _is_own(known, name, scope):
            return attributes.member(m, func, known, name, scope)
    elif type(known) is Unknown:
        if name not in known.attrs:
            return _METHOD
        stored = known.attrs[name]
        if not isinstance(stored, Unknown):
            return stored
    elif type(known) in _DEFINED:
        return attributes.get(m, func, known, name, scope)
    return _METHOD


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
    handler = CALLED.get(type(callee))
    if handler is not None:
        return handler(m, callee, call)
    return opaque.unknown_call(m, str(callee.known_as) if isinstance(callee, Thing) else "", call)


def method(m: Machine, callee: Method, call: Call) -> Value:
    """Call a method that was taken from its object before."""
    call.name = callee.name
    return methods.method(m, callee.receiver, call)


def reference(m: Machine, callee: Ref, call: Call) -> Value:
    """Call something that is not the project's."""
    return outside.call(m, callee.path, call)


def native(m: Machine, callee: Native, call: Call) -> Value:
    """Call a function that the executor supplies."""
    m.level += 1  # partials of partials evaluate nothing on their way down
    if m.level > MOST_EXPRESSIONS:
        raise RecursionError
    made = callee.call(m, call)
    m.level -= 1
    return made


def instance(m: Machine, callee: Instance, call: Call) -> Value:
    """Call an object of a class of the project."""
    own = attributes.find_member(callee, "__call__")
    if not isinstance(own, Function):
        return opaque.unknown_call(m, str(callee.known_as), call)
    own = functions.bind(m, call.node, own, callee, call.scope)
    return functions.invoke(m, own, call)
