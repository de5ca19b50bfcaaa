"""Comparisons: a boolean, a gate that hangs on a count, or a condition that cannot be known."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

from instep.check.execute.decisions import Choice, Undecided
from instep.check.execute.numbers import key, number
from instep.check.execute.ticks import Mod, Tick
from instep.check.execute.values import (
    TENSOR,
    DictValue,
    Gate,
    ListValue,
    Native,
    Ref,
    Unknown,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value

_MIRROR = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_ORDERED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_BELOW, _ABOVE = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)
_PLAIN = str | int | bool | None
_MEMBER = "member "  # no text that a program compares with begins so


def compare(m: Machine, op: ast.cmpop, left: Value, right: Value) -> Value:
    """Return the value of `left op right`: a boolean, a gate, or what it hangs on."""
    kind = type(op)
    is_equality = kind is ast.Eq or kind is ast.NotEq
    if kind is ast.Is or kind is ast.IsNot or (is_equality and (left is None or right is None)):
        return _identity(m, left, right, negated=kind is ast.IsNot or kind is ast.NotEq)
    if kind is ast.In or kind is ast.NotIn:
        return _contains(left, right, negated=kind is ast.NotIn)
    one, two = number(left), number(right)
    if m.counting and (isinstance(left, Tick) or isinstance(right, Tick)):
        # The branch resets what is compared: the other side is how far it counts.
        one = left.number() if isinstance(left, Unknown) else one
        two = right.number() if isinstance(right, Unknown) else two
    if one is not None and two is not None:
        m.ended = m.ended or not is_equality
        return _gated(m, left, right, holds=_ORDERED[kind](one, two))
    if isinstance(left, str) and isinstance(right, str):
        return _ORDERED[kind](left, right)
    if isinstance(left, bool) and isinstance(right, Unknown):
        left, right = right, left
    if is_equality and isinstance(right, bool) and isinstance(left, Unknown):
        condition = Undecided(key(left))
        return condition if right == (kind is ast.Eq) else ~condition
    alike = _same_type(left, right) if is_equality else None
    return _undecided(m, kind, left, right) if alike is None else alike == (kind is ast.Eq)


def _same_type(left: Value, right: Value) -> bool | None:
    """Say whether two types are one, where `type(value)` is that of a tensor or of a number."""
    if isinstance(left, Native) and isinstance(right, Native):
        return left is right
    other = right if left is TENSOR else left
    if left is not TENSOR and right is not TENSOR:
        return None
    if isinstance(other, Ref):
        return True if other.path == TENSOR.path else None
    return False if isinstance(other, Native) else None


def _gated(m: Machine, left: Value, right: Value, *, holds: bool) -> Value:
    for side in (left, right):
        if isinstance(side, Mod):
            return Gate(side.every, written=side.written, holds=holds)
    for side, other in ((left, right), (right, left)):
        bound = number(other) if m.counting else None  # or else it is an end, not a window
        if isinstance(side, Tick) and isinstance(bound, int) and bound > 1:
            return Gate(bound, written=written(other), holds=holds)
    return holds


def _identity(m: Machine, left: Value, right: Value, *, negated: bool) -> Value:
    if left is None and right is None:
        return not negated
    if left is not None and right is not None:
        alike = _same_type(left, right)
        if alike is not None:
            return alike != negated
        same = left is right
        known = not isinstance(left, Unknown) and not isinstance(right, Unknown)
        return same != negated if same or known else _undecided(m, ast.Eq, left, right)
    other = right if left is None else left
    if isinstance(other, Unknown):
        present = Undecided(other.key)
        return present if negated else ~present
    return negated


def _contains(left: Value, right: Value, *, negated: bool) -> Value:
    if isinstance(right, ListValue | DictValue) and right.exact and not right.items:
        return negated
    items = right.items if isinstance(right, ListValue) and right.exact else right
    if isinstance(items, tuple | list) and items:
        alike = [_same_type(left, item) for item in items]
        if True in alike or None not in alike:
            return (True in alike) != negated
    plain = isinstance(items, tuple | list) and isinstance(left, _PLAIN)
    if plain and all(isinstance(item, _PLAIN) for item in items):
        return (left in items) != negated
    if isinstance(left, str) and isinstance(right, str):
        return (left in right) != negated
    choice = _choice(key(left), items) if isinstance(items, tuple | list) else None
    among = key(right) if choice is None else sorted(map(repr, choice.values))
    condition = Undecided(f"{key(left)} in {among}", choice=choice)
    return ~condition if negated else condition


def _choice(subject: str, values: Sequence[Value]) -> Choice | None:
    """Return the question whether something is one of these values, if all of them are plain or
    members of an enumeration.
    """
    found = [_MEMBER + str(v.known_as) if _is_member(v) else v for v in values]
    plain = [value for value in found if type(value) is str or type(value) is int]
    return Choice(subject, frozenset(plain)) if plain and len(plain) == len(values) else None


def _is_member(value: Value) -> bool:
    """Say whether something is called as a member of an enumeration is: `Kind.SGD`."""
    name = value.known_as if isinstance(value, Unknown | Ref) else None
    of, _, member = (name or "").rpartition(".")
    of = of.rpartition(".")[2]
    return member.isupper() and of[:1].isupper() and not of.isupper()


def _undecided(m: Machine, kind: type[ast.cmpop], left: Value, right: Value) -> Undecided:
    """Return the condition in one form, so that `a <= b` and `not b < a` are one decision."""
    for side, lower in ((left, _BELOW), (right, _ABOVE)):
        if number(side) is not None and kind not in lower:
            # Up to an unknown number nothing is skipped for good; beyond it, everything is.
            m.bound = "count" if isinstance(side, Tick) else "index"
    one, two = key(left), key(right)
    if kind in _MIRROR:
        kind, one, two = _MIRROR[kind], two, one
    if kind is ast.LtE:
        return Undecided(f"{two} Lt {one}", positive=False)
    if kind is not ast.Eq and kind is not ast.NotEq:
        return Undecided(f"{one} {kind.__name__} {two}")
    if isinstance(left, str):  # not a count, which is another one at the next turn
        left, right, one, two = right, left, two, one
    choice = _choice(one, [right]) if isinstance(left, Unknown) else None
    return Undecided(f"{one} Eq {two}", positive=kind is ast.Eq, choice=choice)
