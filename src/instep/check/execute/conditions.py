"""Conditions: what is known decides, and as few decisions as possible do the rest."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute.decisions import Undecided
from instep.check.execute.lengths import MOST_EVERY
from instep.check.execute.machine import RestartError, truth
from instep.check.execute.tensors import Tensor
from instep.check.execute.ticks import Mod
from instep.check.execute.values import Gate, unify

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope

_DRAWS = frozenset({"get", "next", "pop", "popleft", "popitem", "random", "rand", "recv"})
"""What gives something else each time."""


def test(m: Machine, node: ast.expr, scope: Scope, *, prefer: bool, worth: bool) -> bool:
    """Return whether a condition holds; `prefer` where that cannot be known."""
    if isinstance(node, ast.BoolOp):
        return _connected(m, node, scope, prefer=prefer, worth=worth)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not test(m, node.operand, scope, prefer=not prefer, worth=worth)
    found = _truth(m, node, scope)
    if isinstance(found, Undecided):
        return m.decisions.decide(found, prefer=prefer, worth=worth, looping=bool(m.loops))
    return found


def _truth(m: Machine, node: ast.expr, scope: Scope) -> bool | Undecided:
    value = m.ev(node, scope)
    if isinstance(value, (Gate, Mod)):
        m.seen_gate = (value.every, value.written)
        if m.gate_matters and value.every <= MOST_EVERY and m.hang(value.every):
            raise RestartError
    found = truth(value)
    if isinstance(found, Undecided):
        m.hung = True
        if type(node) is ast.Call and _is_question(m, node, scope):
            found = Undecided(f"{id(scope.module)}:{scope.module.spelled(node)}")
    return found


def _is_question(m: Machine, node: ast.Call, scope: Scope) -> bool:
    """Say whether a call is a question that has the same answer wherever it is asked:
    `encoder.is_frozen()`, but not what draws, nor what is asked of a tensor.
    """
    func = node.func
    if node.args or node.keywords or not isinstance(func, ast.Attribute | ast.Name):
        return False
    if isinstance(func, ast.Name):
        return func.id not in _DRAWS
    of = func.value
    if func.attr in _DRAWS or not isinstance(of, ast.Attribute | ast.Name):
        return False
    return not (isinstance(of, ast.Name) and isinstance(unify(m.lookup(of.id, scope)), Tensor))


def _connected(m: Machine, node: ast.BoolOp, scope: Scope, *, prefer: bool, worth: bool) -> bool:
    """`and`, `or`: what is known decides first, then as few decisions as possible."""
    ends = isinstance(node.op, ast.Or)  # the value that settles the whole
    conditions: list[Undecided] = []
    settled = False
    for part in node.values:
        if isinstance(part, ast.BoolOp):
            settled = test(m, part, scope, prefer=prefer, worth=worth) is ends or settled
            continue
        found = _truth(m, part, scope)
        if isinstance(found, Undecided):
            known = m.decisions.known(found)
            if known is None:
                conditions.append(found)
                continue
            found = known
        # The others are looked at all the same: a gate among them says how long loops must run.
        settled = settled or found is ends
    if settled:
        return ends
    looping = bool(m.loops)
    for condition in conditions[:-1]:
        # All but the last do not settle it, so that the last one can go either way.
        m.decisions.decide(condition, prefer=not ends, worth=worth, looping=looping)
    if any(m.decisions.known(condition) is ends for condition in conditions[:-1]):
        return ends
    if conditions:
        return m.decisions.decide(conditions[-1], prefer=prefer, worth=worth, looping=looping)
    return not ends
