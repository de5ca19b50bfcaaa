"""Arithmetic and comparisons: counters are computed, unknown numbers stay themselves."""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING, Any

from instep.check.execute.decisions import Undecided
from instep.check.execute.machine import MOST_EVERY
from instep.check.execute.values import (
    DictValue,
    Gate,
    Grad,
    ListValue,
    Mod,
    Net,
    Parameters,
    Tensor,
    Thing,
    Tick,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope

COUNTS = re.compile(
    r"accum|grad_?acc|acc_?(steps|iter|grad)|iter_?size|micro|update_?freq|n_?(chunks|splits|acc)"
    r"|num_(chunks|splits|patches|pieces|micro)|virtual|cumul|subdivisions|update_every",
    re.IGNORECASE,
)
"""Names that stand for a number of micro-batches even where nothing is known about them."""

_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_MIRROR = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}


def number(value: Value) -> int | float | None:
    """Return a value as a number if it is one, or is taken for one."""
    if isinstance(value, Unknown):
        if value.count is not None:
            return value.count
        if value.made is None and value.known_as and COUNTS.search(value.known_as):
            return value.number()
        return None
    if isinstance(value, int | float):
        return value
    return None


def key(value: Value) -> str:
    """Return a text that is the same for the same value."""
    if isinstance(value, Unknown):
        return value.key
    if isinstance(value, Tensor):
        return f"tensor:{getattr(value.made_at, 'lineno', 0)}"
    if isinstance(value, Thing):
        return f"{type(value).__name__}:{value.known_as}"
    return repr(value)


def binary(
    m: Machine, node: ast.AST, op: ast.operator, left: Value, right: Value, scope: Scope
) -> Value:
    """Return the value of `left op right`."""
    from instep.check.execute import tensors

    if _is_tensor(left) or _is_tensor(right):
        return tensors.binary(m, node, op, left, right, scope)
    kind = type(op)
    if kind is ast.Mod and not isinstance(left, str):
        return _modulo(m, node, left, right, scope)
    one, two = number(left), number(right)
    if one is not None and two is not None:
        return compute(m, node, kind, one, two, scope)
    if kind is ast.Add and isinstance(left, Parameters) and isinstance(right, Parameters):
        held = None if left.nets is None or right.nets is None else left.nets | right.nets
        return Parameters(held, complete=left.complete and right.complete)
    if kind is ast.Add and isinstance(left, ListValue) and isinstance(right, ListValue):
        return ListValue([*left.items, *right.items], exact=left.exact and right.exact)
    if kind is ast.Add and isinstance(left, tuple) and isinstance(right, tuple):
        return left + right
    if isinstance(left, str) and isinstance(right, str) and kind is ast.Add:
        return left + right
    at = (kind, key(left), key(right))
    made = m.derived.get(at)
    if made is None:
        drawn = getattr(left, "drawn", None) or getattr(right, "drawn", None)
        made = m.derived[at] = Unknown(f"({at[1]} {kind.__name__} {at[2]})", "", drawn)
        made.formula = (node, op, left, right, scope)
        if kind is ast.Div and one in {1, 1.0}:
            made.inverse = right
    return made


def compute(
    m: Machine, node: ast.AST, kind: type[ast.operator], one: Any, two: Any, scope: Scope
) -> Value:
    """Return the result of an operation on two numbers."""
    operation = _OPERATIONS.get(kind)
    if operation is None or (kind is ast.Pow and abs(two) > 64):
        return m.unknown(node, scope)
    try:
        result = operation(one, two)
    except (ArithmeticError, ValueError, TypeError):
        return m.unknown(node, scope)
    if isinstance(result, int) and not isinstance(result, bool):
        if abs(result) > 1 << 64:
            return m.unknown(node, scope)
        return Tick(result) if kind is ast.Sub else result
    return result if isinstance(result, float) else m.unknown(node, scope)


def _modulo(m: Machine, node: ast.AST, left: Value, right: Value, scope: Scope) -> Value:
    divisor = number(right)
    literal = not isinstance(right, Unknown)
    if divisor is None and isinstance(right, Unknown):
        divisor = right.number()
    if not isinstance(divisor, int) or divisor <= 0:
        return m.unknown(node, scope)
    value = number(left)
    sure = isinstance(value, int)
    if not isinstance(value, int):
        # Nobody knows where this counter stands; it does count, so it counts how often it is asked.
        value = m.sites.get(id(node), 0) + 1
        m.sites[id(node)] = value
    shown = divisor
    if divisor > MOST_EVERY:
        # Something that happens every thousand iterations must happen in the few that are run.
        divisor, sure = 2, False
    rest = Mod(value % divisor)
    rest.every, rest.literal, rest.sure = shown, literal, sure
    if not sure and shown <= MOST_EVERY:
        for loop in m.loops:
            loop.unsure = True
    return rest


def compare(m: Machine, op: ast.cmpop, left: Value, right: Value) -> Value:
    """Return the value of `left op right`: a boolean, a gate, or what it hangs on."""
    if isinstance(op, ast.Is | ast.IsNot) or (
        isinstance(op, ast.Eq | ast.NotEq) and (left is None or right is None)
    ):
        return _identity(m, left, right, negated=isinstance(op, ast.IsNot | ast.NotEq))
    if isinstance(op, ast.In | ast.NotIn):
        return _contains(left, right, negated=isinstance(op, ast.NotIn))
    one, two = number(left), number(right)
    if m.counting and (isinstance(left, Tick) or isinstance(right, Tick)):
        # The branch resets what is compared: the other side is how far it counts.
        one = left.number() if isinstance(left, Unknown) else one
        two = right.number() if isinstance(right, Unknown) else two
    if one is not None and two is not None:
        holds = _ordered(op, one, two)
        return _gated(left, right, holds)
    if isinstance(left, str) and isinstance(right, str):
        return _ordered(op, left, right)
    if isinstance(left, bool) and isinstance(right, Unknown):
        left, right = right, left
    if isinstance(right, bool) and isinstance(op, ast.Eq | ast.NotEq):
        condition = Undecided(key(left)) if isinstance(left, Unknown) else None
        if condition is not None:
            return condition if right == isinstance(op, ast.Eq) else ~condition
    return _undecided(m, op, left, right)


def _gated(left: Value, right: Value, holds: bool) -> Value:
    for side in (left, right):
        if isinstance(side, Mod):
            return Gate(holds, side.every, side.literal)
    for side, other in ((left, right), (right, left)):
        bound = number(other)
        if isinstance(side, Tick) and isinstance(bound, int) and bound > 1:
            return Gate(holds, bound, not isinstance(other, Unknown))
    return holds


def _ordered(op: ast.cmpop, one: Any, two: Any) -> bool:
    match op:
        case ast.Eq():
            return bool(one == two)
        case ast.NotEq():
            return bool(one != two)
        case ast.Lt():
            return bool(one < two)
        case ast.LtE():
            return bool(one <= two)
        case ast.Gt():
            return bool(one > two)
    return bool(one >= two)


def _identity(m: Machine, left: Value, right: Value, *, negated: bool) -> Value:
    if left is None and right is None:
        return not negated
    other = right if left is None else left
    if left is not None and right is not None:
        same = left is right
        known = not isinstance(left, Unknown) and not isinstance(right, Unknown)
        return same != negated if same or known else _undecided(m, ast.Eq(), left, right)
    if isinstance(other, Undecided):
        return negated
    if isinstance(other, Unknown):
        present = Undecided(other.key)
        return present if negated else ~present
    return negated


def _contains(left: Value, right: Value, *, negated: bool) -> Value:
    if isinstance(right, ListValue | DictValue) and right.exact and not right.items:
        return negated
    items = right.items if isinstance(right, ListValue) and right.exact else right
    if isinstance(items, tuple | list) and isinstance(left, str | int | bool | None):
        if all(isinstance(item, str | int | bool | None) for item in items):
            return (left in items) != negated
    if isinstance(left, str) and isinstance(right, str):
        return (left in right) != negated
    condition = Undecided(f"{key(left)} in {key(right)}")
    return ~condition if negated else condition


def _undecided(m: Machine, op: ast.cmpop, left: Value, right: Value) -> Undecided:
    """Return the condition in one form, so that `a <= b` and `not b < a` are one decision."""
    for side in (left, right):
        if number(side) is not None:
            m.bound = "count" if isinstance(side, Tick) else "index"
    kind: type[ast.cmpop] = type(op)
    one, two = key(left), key(right)
    if kind in _MIRROR:
        kind, one, two = _MIRROR[kind], two, one
    if kind is ast.LtE:
        return Undecided(f"{two} Lt {one}", positive=False)
    if kind is ast.NotEq:
        return Undecided(f"{one} Eq {two}", positive=False)
    return Undecided(f"{one} {kind.__name__} {two}")


def _is_tensor(value: Value) -> bool:
    if isinstance(value, Unknown) and isinstance(value.made, Tensor):
        return True
    return isinstance(value, Tensor | Grad) or (
        isinstance(value, Net) and value.kind == "Parameter"
    )
