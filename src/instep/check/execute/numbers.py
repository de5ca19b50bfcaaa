"""Arithmetic: counters are computed, unknown numbers stay themselves."""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING, Any

from instep.check.execute import factors, tensors
from instep.check.execute.lengths import MOST_EVERY
from instep.check.execute.roles import Names
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Grad, Net, Parameters
from instep.check.execute.ticks import Mod, Tick
from instep.check.execute.values import (
    LENGTH,
    DictValue,
    ListValue,
    Thing,
    Unknown,
    key_of,
    unify,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.values import Value

COUNTS = Names(
    r"accum|grad_?acc|acc_?(steps|iter|grad)|iter_?size|micro|update_?freq|n_?(chunks|splits|acc)"
    r"|num_(chunks|splits|patches|pieces|micro)|virtual|cumul|subdivisions|update_every",
    re.IGNORECASE,
)
"""Names that stand for a number of micro-batches even where nothing is known of them."""
_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_MOST_POWER = 64
_MOST_INT = 1 << 64
MOST_ITEMS = 256
"""Elements and characters of what `+` puts together: doubled at each pass, they fill any memory."""


def number(value: Value) -> int | float | None:
    """Return a value as a number if it is one, or is taken for one."""
    if type(value) is Unknown:
        if value.count is not None:
            return value.count
        if value.made is None and value.known_as and value.known_as in COUNTS:
            return value.number()
        return None
    return value if isinstance(value, (int, float)) else None


def key(value: Value) -> str:
    """Return a text that is the same for the same value."""
    if isinstance(value, Unknown):
        return value.key
    if isinstance(value, Tensor):
        return f"tensor:{getattr(value.made_at, 'lineno', 0)}"
    if isinstance(value, Thing):
        return f"{type(value).__name__}:{value.known_as}"
    if isinstance(value, tuple):
        return f"tuple:{id(value)}" if _is_deep(value) else key_of(repr(value))
    return key_of(repr(value)) if isinstance(value, str) else repr(value)


def _is_deep(value: tuple[Value, ...]) -> bool:
    """Say whether a tuple holds others that hold others: they may be the same a million times."""
    return len(value) > MOST_ITEMS or any(
        isinstance(part, tuple) and any(isinstance(inner, tuple) for inner in part)
        for part in value
    )


def binary(
    m: Machine, node: ast.AST, op: ast.operator, left: Value, right: Value, *, scope: Scope
) -> Value:
    """Return the value of `left op right`."""
    if _is_tensor(left) or _is_tensor(right):
        return factors.binary(m, node, op, left, right, scope=scope)
    kind = type(op)
    if kind is ast.Mod and not isinstance(left, str):
        return _modulo(m, node, left, right, scope)
    one, two = number(left), number(right)
    if one is not None and two is not None:
        found = compute(kind, one, two)
        return m.unknown(node, scope) if found is None else found
    if kind is ast.Add:
        joined = _joined(left, right)
        if joined is not None:
            return joined
        for count, more in ((left, two), (right, one)):
            if tensors.is_count(count) and tensors.is_floor(more):
                return count  # which is kept from being nothing
    at = (kind, key(left), key(right))
    made = m.derived.get(at)
    if made is None:
        drawn = getattr(left, "drawn", None) or getattr(right, "drawn", None)
        made = m.derived[at] = Unknown(f"({at[1]} {kind.__name__} {at[2]})", "", drawn)
        made.formula = (node, op, left, right, scope)
        if kind is ast.Div and one == 1:
            made.inverse = right
    return made


def _joined(left: Value, right: Value) -> Value:
    """Return what `+` makes of two containers or texts; None if these are none."""
    if isinstance(left, Parameters) and isinstance(right, Parameters):
        held = None if left.nets is None or right.nets is None else left.nets | right.nets
        return Parameters(held, complete=left.complete and right.complete)
    if isinstance(left, ListValue) and isinstance(right, ListValue):
        items = [*left.items, *right.items]
        exact = left.exact and right.exact and len(items) <= MOST_ITEMS
        return ListValue(items[:MOST_ITEMS], exact=exact)
    same = type(left) is type(right) and isinstance(left, tuple | str)
    return left + right if same and len(left) + len(right) <= MOST_ITEMS else None


def compute(kind: type[ast.operator], one: Any, two: Any) -> int | float | None:
    """Return the result of an operation on two numbers; None if it has none that is worth having.

    >>> compute(ast.Add, 1, 2), compute(ast.Div, 1, 0), compute(ast.Pow, 10, 100)
    (3, None, None)
    """
    operation = _OPERATIONS.get(kind)
    if operation is None or (kind is ast.Pow and abs(two) > _MOST_POWER):
        return None
    try:
        result = operation(one, two)
    except (ArithmeticError, ValueError, TypeError):
        return None
    if isinstance(result, int) and not isinstance(result, bool):
        if abs(result) > _MOST_INT:
            return None
        if kind is ast.Sub:
            return Tick(result)
        return result
    return result if isinstance(result, float) else None


def _modulo(m: Machine, node: ast.AST, left: Value, right: Value, scope: Scope) -> Value:
    m.look_up(right, scope.module)
    divisor = number(right)
    if divisor is None and isinstance(right, Unknown):
        divisor = right.number()
    if isinstance(divisor, float) and divisor.is_integer():
        divisor = int(divisor)
    if not isinstance(divisor, int) or divisor <= 0:
        return m.unknown(node, scope)
    value = number(left)
    sure = isinstance(value, int)
    if not isinstance(value, int):
        # Nobody knows where this counter stands; it does count, so it counts how often it is asked.
        value = m.sites[node] = m.sites.get(node, 0) + 1
        asked = m.counters.setdefault(scope.module.spelled(getattr(node, "left", node)), set())
        asked.add(node)
        if len(asked) == 2 and m.gate_matters:
            # What happened to it between the two is not known either.
            m.note("opaque", node, scope, what="a counter", values=None)
    rest = Mod(value % divisor)
    if divisor > MOST_EVERY:
        # Something that happens every thousand iterations must happen in the few that are run.
        rest = Mod(value % 2)
    elif not sure:
        for loop in m.loops:
            loop.unsure = True
    rest.every, rest.written = divisor, written(right)
    for loop in m.loops:
        # One turn through heads or tasks is a sum over them, and not a batch in pieces.
        loop.unsure = loop.unsure or any(_is_length(right, of) for of in loop.cycled)
    return rest


def _is_length(value: Value, of: Value) -> bool:
    of = unify(of)
    if isinstance(of, ListValue | DictValue) and of.exact:
        of = tuple(of.items)
    if isinstance(of, tuple):
        return bool(value == len(of))
    return isinstance(of, Thing) and value is not None and of.attrs.get(LENGTH) is value


def _is_tensor(value: Value) -> bool:
    kind = type(value)
    if kind is Unknown:
        return isinstance(value.made, Tensor)
    return kind is Tensor or kind is Grad or (kind is Net and value.kind == "Parameter")
