"""Subscripts: `value[at]`, of containers, batches and models."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import standins, tensors
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Net, Param
from instep.check.execute.values import DictValue, ListValue, Unknown

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.values import Value

ELSEWHERE = "(computed)"
"""A bound of a slice that is no written number."""


def subscript(m: Machine, node: ast.Subscript, scope: Scope) -> Value:
    """Evaluate `value[at]`."""
    value = m.ev(node.value, scope)
    at = m.ev(node.slice, scope)
    return item(m, node, value, at, scope)


def slice_(_m: Machine, node: ast.Slice, _scope: Scope) -> Value:
    """Evaluate `a:b`: of numbers that are written there; for all else, that it is a part matters,
    not which.
    """
    return slice(*(_written(bound) for bound in (node.lower, node.upper, node.step)))


def _written(node: ast.expr | None) -> Value:
    match node:
        case None:
            return None
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    return ELSEWHERE


def item(m: Machine, node: ast.AST, value: Value, at: Value, scope: Scope) -> Value:
    """Return what `value[at]` stands for."""
    found: Value
    match value:
        case Unknown():
            if isinstance(value.made, Tensor | DictValue):
                return item(m, node, value.made, at, scope)
            found = _of_unknown(value, at)
        case ListValue():
            found = _of_list(m, node, value, at, scope)
            standins.took(m, node, value, at, found, scope=scope)
        case DictValue():
            found = _of_dict(m, node, value, at, scope)
            standins.took(m, node, value, at, found, scope=scope)
        case tuple():
            found = _of_tuple(m, node, value, at, scope)
        case Tensor():
            found = tensors.derive(m, node, [value], scope)
            if isinstance(found, Tensor) and isinstance(at, str):
                found.known_as = at
        case Net():
            found = part(value, at)
        case Param() if value.optimizer is not None and at == "params":
            found = value
        case _:
            found = m.unknown(node, scope)
    return found


def _of_tuple(
    m: Machine, node: ast.AST, value: tuple[Value, ...], at: Value, scope: Scope
) -> Value:
    if isinstance(at, int) and -len(value) <= at < len(value):
        return value[at]
    return value if isinstance(at, slice) else m.unknown(node, scope)


def _of_unknown(value: Unknown, at: Value) -> Value:
    if not isinstance(at, str | int):
        return Unknown(f"{value.key}[]", "", value.drawn)
    name = f"[{at!r}]"
    found = value.attrs.get(name)
    if found is None:
        label = at if isinstance(at, str) else f"{value.known_as}[{at}]"
        found = value.attrs[name] = Unknown(value.key + name, label, value.drawn)
    return found


def _of_list(m: Machine, node: ast.AST, value: ListValue, at: Value, scope: Scope) -> Value:
    counts = isinstance(at, int) and not isinstance(at, bool) and value.exact
    if counts and -len(value.items) <= at < len(value.items):
        return value.items[at]
    if isinstance(at, slice):
        known = value.exact and value.items and all(map(standins.is_trained, value.items))
        if known and ELSEWHERE not in {at.start, at.stop, at.step} and at.step != 0:
            return ListValue(value.items[at], born=value.born)
        return ListValue(value.items, exact=False, born=value.born)
    return value.items[0] if value.items else m.unknown(node, scope)


def _of_dict(m: Machine, node: ast.AST, value: DictValue, at: Value, scope: Scope) -> Value:
    if isinstance(at, str | int | float | bool) and at in value.items:
        return value.items[at]
    if not isinstance(at, str | int) and value.items:
        return next(iter(value.items.values()))
    made = m.unknown(node, scope, at if isinstance(at, str) else "")
    if isinstance(at, str | int):
        made.key = f"{id(value)}[{at!r}]"
        value.items[at] = made
        value.exact = False
    return made


def part(net: Net, at: Value = None) -> Net:
    """Return a layer of a model by its number or name; the one that stands for all without."""
    name = f"[{at!r}]" if isinstance(at, int | str) else "[]"
    found = net.attrs.get(name)
    if not isinstance(found, Net):
        found = Net(f"{net.known_as}{name}", part_of=net)
        found.training = net.training
        net.attrs[name] = found
    return found
