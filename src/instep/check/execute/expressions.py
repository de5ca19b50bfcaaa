"""Expressions other than calls, subscripts and comprehensions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import (
    assignment,
    attributes,
    comparisons,
    conditions,
    containers,
    numbers,
    tensors,
    versions,
)
from instep.check.execute.decisions import Undecided
from instep.check.execute.definitions import Function
from instep.check.execute.machine import truth
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Parameters
from instep.check.execute.ticks import Mod
from instep.check.execute.values import SUM, DictValue, Gate, ListValue, Unknown, unify

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.values import Value


def unknown(m: Machine, node: ast.expr, scope: Scope) -> Value:
    """Evaluate what nothing is known about: a `yield`, say."""
    return m.unknown(node, scope)


def constant(_m: Machine, node: ast.Constant, _scope: Scope) -> Value:
    """Evaluate a number, a text, None."""
    return node.value


def name(m: Machine, node: ast.Name, scope: Scope) -> Value:
    """Evaluate a name."""
    found = scope.names.get(node.id)
    return found if found is not None else m.lookup(node.id, scope)


def attribute(m: Machine, node: ast.Attribute, scope: Scope) -> Value:
    """Evaluate `value.name`."""
    return attributes.get(m, node, m.ev(node.value, scope), node.attr, scope)


def tuple_(m: Machine, node: ast.Tuple, scope: Scope) -> Value:
    """Evaluate `a, b`."""
    return tuple(_elements(m, node.elts, scope)[0])


def list_(m: Machine, node: ast.List | ast.Set, scope: Scope) -> Value:
    """Evaluate `[a, b]` or `{a, b}`."""
    items, exact = _elements(m, node.elts, scope)
    return ListValue(items, exact=exact, born=m.serial)


def _elements(m: Machine, nodes: list[ast.expr], scope: Scope) -> tuple[list[Value], bool]:
    items: list[Value] = []
    exact = True
    for node in nodes:
        if isinstance(node, ast.Starred):
            inner = unify(m.ev(node.value, scope))
            if isinstance(inner, tuple | ListValue):
                known = isinstance(inner, tuple) or inner.exact
                held = inner if isinstance(inner, tuple) else inner.items
                room = max(0, numbers.MOST_ITEMS - len(items))
                items.extend(held[:room])
                exact = exact and known and len(held) <= room
            else:
                items.append(inner)
                exact = isinstance(inner, Parameters)
        else:
            items.append(m.ev(node, scope))
    return items, exact


def dict_(m: Machine, node: ast.Dict, scope: Scope) -> Value:
    """Evaluate `{a: b}`."""
    made = DictValue({})
    items = made.items
    for key, value in zip(node.keys, node.values, strict=True):
        got = m.ev(value, scope)
        at = None if key is None else m.ev(key, scope)
        if key is None:
            containers.merge(made, got)
        elif isinstance(at, str | int | float | bool):
            items[at] = got
        else:
            items[f"?{len(items)}"] = got
            made.exact = False
    return made


def binary(m: Machine, node: ast.BinOp, scope: Scope) -> Value:
    """Evaluate `a + b`."""
    left, right = m.ev(node.left, scope), m.ev(node.right, scope)
    return numbers.binary(m, node, node.op, left, right, scope=scope)


def unary(m: Machine, node: ast.UnaryOp, scope: Scope) -> Value:
    """Evaluate `not a` or `-a`."""
    value = m.ev(node.operand, scope)
    if isinstance(node.op, ast.Not):
        return _negated(value)
    if isinstance(node.op, ast.USub):
        if isinstance(value, Tensor):
            return tensors.copy(m, value, node)
        plain = numbers.number(value)
        if plain is not None:
            return -plain
        is_sum = isinstance(value, Unknown) and value.known_as == SUM
        return m.unknown(node, scope, SUM if is_sum else "")
    return value


def _negated(value: Value) -> Value:
    if isinstance(value, Gate):
        return value.turned(holds=not value.holds)
    if isinstance(value, Mod):
        return Gate(value.every, written=value.written, holds=value == 0)
    found = truth(value)
    return ~found if isinstance(found, Undecided) else not found


def boolean(m: Machine, node: ast.BoolOp, scope: Scope) -> Value:
    """Evaluate `a or b` as a value: the first one that is not surely passed over."""
    wants = isinstance(node.op, ast.Or)
    gate: Gate | None = None
    value: Value = None
    undecided: Value = None
    for part in node.values:
        value = m.ev(part, scope)
        if isinstance(value, Gate):
            gate = value
        found = truth(value)
        if isinstance(found, Undecided):
            known = m.decisions.known(found)
            if known is None:
                undecided = undecided if undecided is not None else value
                continue
            found = known
        if found is wants:
            if gate is not None:
                return gate.turned(holds=wants)
            return value if undecided is None else undecided
    if undecided is not None:
        return undecided if wants or gate is None or gate.holds else gate
    return gate.turned(holds=not wants) if gate is not None else value


def compare(m: Machine, node: ast.Compare, scope: Scope) -> Value:
    """Evaluate `a < b`."""
    known = versions.of_torch(m, node, scope)
    if known is not None:
        return known
    left = m.ev(node.left, scope)
    result: Value = True
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = m.ev(right_node, scope)
        result = comparisons.compare(m, op, left, right)
        if result is False or (isinstance(result, Gate) and not result.holds):
            return result
        left = right
    return result


def choice(m: Machine, node: ast.IfExp, scope: Scope) -> Value:
    """Evaluate `a if test else b`."""
    worth = scope.module.scan.hot(node.body) or scope.module.scan.hot(node.orelse)
    prefer = not (isinstance(node.body, ast.Constant) and node.body.value is None)
    taken = conditions.test(m, node.test, scope, prefer=prefer, worth=worth)
    return m.ev(node.body if taken else node.orelse, scope)


def lambda_(_m: Machine, node: ast.Lambda, scope: Scope) -> Value:
    """Evaluate a lambda."""
    return Function(node, scope)


def walrus(m: Machine, node: ast.NamedExpr, scope: Scope) -> Value:
    """Evaluate `name := value`."""
    value = m.ev(node.value, scope)
    assignment.assign(m, node.target, value, scope)
    return value


def wrapped(m: Machine, node: ast.Await | ast.Starred, scope: Scope) -> Value:
    """Evaluate what stands behind `await` or `*`."""
    return m.ev(node.value, scope)


def text(m: Machine, node: ast.JoinedStr, scope: Scope) -> Value:
    """Evaluate an f-string."""
    return m.unknown(node, scope, "text")
