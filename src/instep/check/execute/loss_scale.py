"""The loss scale as a number: `scaler.get_scale()`, and what is multiplied by it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute.things import Scaler
from instep.check.execute.values import Unknown

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value

_SCALER = "(scale of)"
"""The attribute of a number that has the scaler whose scale it is."""
_MOST_TERMS = 8


def asked(m: Machine, scaler: Scaler, call: Call) -> Value:
    """Follow `scaler.get_scale()`."""
    found = call.unknown(m)
    found.attrs[_SCALER] = scaler
    return found


def scaler_in(value: Value) -> Scaler | None:
    """Return the scaler whose scale a number is a multiple of; None if it is of none."""
    todo = [value]
    for _ in range(_MOST_TERMS):
        if not todo:
            break
        found = todo.pop()
        if not isinstance(found, Unknown):
            continue
        scaler = found.attrs.get(_SCALER)
        if isinstance(scaler, Scaler):
            return scaler
        if found.formula is not None:
            _, op, left, right, _ = found.formula
            if isinstance(op, ast.Mult):
                todo += [left, right]
            elif isinstance(op, ast.Div):
                todo.append(left)
    return None
