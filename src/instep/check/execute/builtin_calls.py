"""Builtins, and the functions of the standard library that act like them."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

from instep.check.execute import attributes, calls, iterables, numbers, outside, tensors
from instep.check.execute.arguments import Call
from instep.check.execute.machine import BUILTINS, truth
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Param, Parameters
from instep.check.execute.values import (
    SUM,
    TENSOR,
    Iterator,
    ListValue,
    Native,
    Range,
    Ref,
    Thing,
    Unknown,
    unify,
)

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value


def field(m: Machine, call: Call) -> Value:
    """Follow the `field(default=1)` of a class of settings."""
    return call.kwargs["default"] if "default" in call.kwargs else call.unknown(m)


def len_(m: Machine, call: Call) -> Value:
    """Follow `len(value)`."""
    found = iterables.length_of(m, call.args[0]) if call.args else None
    return found if found is not None else call.unknown(m)


def range_(m: Machine, call: Call) -> Value:
    """Follow `range(...)`."""
    match call.args:
        case []:
            return call.unknown(m)
        case [stop]:
            return Range(0, stop, 1)
        case [start, stop]:
            return Range(start, stop, 1)
    return Range(*call.args[:3])


def enumerate_(m: Machine, call: Call) -> Value:
    """Follow `enumerate(value)`."""
    if not call.args:
        return call.unknown(m)
    return Iterator(call.args[0], "enumerate", start=call.get(1, "start", 0))


def zip_(m: Machine, call: Call) -> Value:
    """Follow `zip(...)`."""
    return Iterator(tuple(call.args), "zip") if call.args else call.unknown(m)


def same(m: Machine, call: Call) -> Value:
    """Follow what goes through the same things: `reversed`, `tqdm`."""
    return call.args[0] if call.args else call.kwargs.get("iterable", call.unknown(m))


def listed(m: Machine, call: Call) -> Value:
    """Follow `list(value)`."""
    if not call.args:
        return ListValue([], born=m.serial)
    value = unify(call.args[0])
    if isinstance(value, tuple):
        return ListValue(list(value), born=m.serial)
    if isinstance(value, ListValue):
        return ListValue(list(value.items), exact=value.exact, born=m.serial)
    return call.args[0]


def iter_(m: Machine, call: Call) -> Value:
    """Follow `iter(value)`."""
    if not call.args:
        return call.unknown(m)
    return call.args[0] if isinstance(call.args[0], Iterator) else Iterator(call.args[0])


def cycle(m: Machine, call: Call) -> Value:
    """Follow `itertools.cycle(value)`."""
    return Iterator(call.args[0], infinite=True) if call.args else call.unknown(m)


def islice(m: Machine, call: Call) -> Value:
    """Follow `itertools.islice(value, stop)`: what is left is drawn by the next one."""
    if not call.args:
        return call.unknown(m)
    limit = numbers.number(call.args[1]) if len(call.args) == 2 else None
    return Iterator(call.args[0], limit=limit if isinstance(limit, int) else None, infinite=True)


def next_(m: Machine, call: Call) -> Value:
    """Follow `next(iterator)`."""
    if not call.args:
        return call.unknown(m)
    return iterables.draw(m, call.node, call.args[0], call.scope)


def filter_(m: Machine, call: Call) -> Value:
    """Follow `filter(test, value)`."""
    if len(call.args) < 2:
        return call.unknown(m)
    value = unify(call.args[1])
    return value if isinstance(value, Parameters) else call.args[1]


_MOST_MAPPED = 8


def map_(m: Machine, call: Call) -> Value:
    """Follow `map(function, value)`."""
    values = unify(call.args[1]) if len(call.args) == 2 else None
    items = values.items if isinstance(values, ListValue) and values.exact else values
    if isinstance(items, list | tuple) and len(items) <= _MOST_MAPPED:
        made = [calls.call(m, call.args[0], Call(call.node, call.scope, args=[i])) for i in items]
        return ListValue(made, born=m.serial)
    if isinstance(values, Parameters):
        every = iterables.source_of(m, call.node, values, call.scope).element(0)
        calls.call(m, call.args[0], Call(call.node, call.scope, args=[every]))
    known = [value.drawn for value in call.args if isinstance(value, Unknown)]
    return call.unknown(m, drawn=next((drawn for drawn in known if drawn is not None), None))


def sum_(m: Machine, call: Call) -> Value:
    """Follow `sum(values)`."""
    value = unify(call.first)
    if isinstance(value, Tensor):
        return tensors.derive(m, call.node, [value], call.scope)
    items = list(tensors.inside(value))
    if not items:
        return call.unknown(m, SUM)
    total: Value = 0
    for item in items:
        total = numbers.binary(m, call.node, ast.Add(), total, item, scope=call.scope)
    return total


def extreme(m: Machine, call: Call) -> Value:
    """Follow `min(...)` and `max(...)`."""
    plain = [numbers.number(arg) for arg in call.args]
    known = [value for value in plain if value is not None]
    if len(known) == len(plain) > 1:
        return min(known) if call.name == "min" else max(known)
    counts = [value for value in call.args if tensors.is_count(value)]
    if (
        call.name == "max"
        and len(counts) == 1
        and len(plain) == 2
        and any(map(tensors.is_floor, known))
    ):
        return counts[0]
    return tensors.derive(m, call.node, call.args, call.scope)


def int_(m: Machine, call: Call) -> Value:
    """Follow `int(value)`: an unknown number stays the same one."""
    plain = numbers.number(call.first)
    if plain is not None:
        return int(plain)
    return call.first if isinstance(call.first, Unknown) else call.unknown(m)


def float_(m: Machine, call: Call) -> Value:
    """Follow `float(value)` and `round(value)`."""
    if isinstance(call.first, str) and call.first.lower().strip("+") in {"inf", "infinity"}:
        return math.inf
    plain = numbers.number(call.first)
    return float(plain) if plain is not None else call.unknown(m)


def bool_(_m: Machine, call: Call) -> Value:
    """Follow `bool(value)`."""
    return truth(call.args[0]) if call.args else False


def getattr_(m: Machine, call: Call) -> Value:
    """Follow `getattr(value, name)`."""
    if len(call.args) >= 2 and isinstance(call.args[1], str):
        return attributes.get(m, call.node, call.args[0], call.args[1], call.scope)
    return Ref(f"{call.first.path}.?") if isinstance(call.first, Ref) else call.unknown(m)


def setattr_(m: Machine, call: Call) -> Value:
    """Follow `setattr(value, name, new)`."""
    param = unify(call.first)
    if isinstance(param, Param) and call.args[1:] == ["grad", None]:
        call.note(m, "zero", param=param, set_to_none=True)
        return None
    if len(call.args) == 3 and isinstance(call.args[1], str) and isinstance(call.args[0], Thing):
        call.args[0].attrs[call.args[1]] = call.args[2]
    return None


def hasattr_(m: Machine, call: Call) -> Value:
    """Follow `hasattr(value, name)`: the same question has the same answer."""
    made = call.unknown(m)
    made.key = f"hasattr {call.scope.module.spelled(call.node)}"
    return made


def type_(m: Machine, call: Call) -> Value:
    """Follow `type(value)` of a tensor, and of a plain number."""
    value = unify(call.first)
    if isinstance(value, Tensor) and len(call.args) == 1:
        return TENSOR
    if type(value) is float or type(value) is int:
        return BUILTINS[type(value).__name__]
    return outside.call(m, "builtins.type", call)


def isinstance_(m: Machine, call: Call) -> Value:
    """Follow `isinstance(value, float)`: no tensor is a number of Python."""
    if len(call.args) == 2:
        value, kinds = unify(call.args[0]), call.args[1]
        asked = kinds if isinstance(kinds, tuple) else (kinds,)
        numbers_ = (BUILTINS["float"], BUILTINS["int"])
        if all(any(kind is number for number in numbers_) for kind in asked):
            if isinstance(value, Tensor):
                return False
            if type(value) is float or type(value) is int:
                return any(kind is BUILTINS[type(value).__name__] for kind in asked)
    return outside.call(m, "builtins.isinstance", call)


def partial(m: Machine, call: Call) -> Value:
    """Follow `functools.partial(function, ...)`."""
    if not call.args:
        return call.unknown(m)
    callee, *first = call.args

    def later(m: Machine, at: Call) -> Value:
        kwargs = {**call.kwargs, **at.kwargs}
        return calls.call(m, callee, Call(at.node, at.scope, at.name, [*first, *at.args], kwargs))

    return Native(later)


def source_text(m: Machine, call: Call) -> Value:
    """Follow `exec` and `eval`: their text is not looked into; before a loop it is of settings."""
    if not m.loops:
        return call.unknown(m)
    call.note(m, "opaque", what=call.name or "exec", values=None)
    m.problem("`exec` and `eval` are not followed", call)
    return call.unknown(m)
