"""Conditions: what is taken of an `if`, and with which decision."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute.decisions import Assumption, Undecided
from instep.check.execute.machine import (
    BREAK,
    CONTINUE,
    EXECUTE,
    MOST_EVERY,
    RAISE,
    RETURN,
    Machine,
    Restart,
    truth,
)
from instep.check.execute.values import Gate, Mod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.check.execute.program import Scope

_LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)


def test(
    m: Machine, node: ast.expr, scope: Scope, *, prefer: bool, worth: bool
) -> bool:
    """Return whether a condition holds; `prefer` where that cannot be known."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not test(m, node.operand, scope, prefer=not prefer, worth=worth)
    if isinstance(node, ast.BoolOp):
        return _connected(m, node, scope, prefer=prefer, worth=worth)
    value = m.ev(node, scope)
    _see_gate(m, value)
    found = truth(value)
    if isinstance(found, Undecided):
        m.hung = True
        return m.decisions.decide(found, prefer, worth=worth)
    return found


def _see_gate(m: Machine, value: object) -> None:
    if isinstance(value, Gate | Mod):
        m.seen_gate = (value.every, value.literal)
        if m.gate_matters and value.every <= MOST_EVERY:
            for loop in m.loops:
                loop.moduli.add(value.every)
            if m.lengths.need(value.every):
                raise Restart


def _connected(
    m: Machine, node: ast.BoolOp, scope: Scope, *, prefer: bool, worth: bool
) -> bool:
    """`and`, `or`: what is known decides first, then as few decisions as possible."""
    ends = isinstance(node.op, ast.Or)  # the value that settles the whole
    conditions: list[Undecided] = []
    settled = False
    for part in node.values:
        if isinstance(part, ast.BoolOp):
            settled = test(m, part, scope, prefer=prefer, worth=worth) is ends or settled
            continue
        value = m.ev(part, scope)
        _see_gate(m, value)
        found = truth(value)
        if isinstance(found, Undecided):
            m.hung = True
            known = m.decisions.known(found)
            if known is None:
                conditions.append(found)
                continue
            found = known
        # The others are looked at all the same: a gate among them says how long loops must run.
        settled = settled or found is ends
    if settled:
        return ends
    for condition in conditions[:-1]:
        # All but the last do not settle it, so that the last one can go either way.
        m.decisions.decide(condition, not ends, worth=worth)
    outcomes = [m.decisions.known(condition) for condition in conditions[:-1]]
    if ends in outcomes:
        return ends
    if conditions:
        return m.decisions.decide(conditions[-1], prefer, worth=worth)
    return not ends


def leaves(body: Sequence[ast.stmt]) -> bool:
    """Say whether a block ends by leaving: a guard."""
    return bool(body) and isinstance(body[-1], _LEAVES)


def _exits(body: Sequence[ast.stmt]) -> bool:
    """Say whether a block ends the program: sys.exit(), exit()."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        func = last.value.func
        return getattr(func, "attr", None) == "exit" or getattr(func, "id", None) in {
            "exit",
            "quit",
        }
    return False


def _if(m: Machine, node: ast.If, scope: Scope) -> int | None:
    scan = scope.module.scan
    guards = (leaves(node.body) or _exits(node.body)) and not leaves(node.orelse)
    hot = scan.any_hot(node.body) or scan.any_hot(node.orelse)
    m.seen_gate, m.hung, m.gate_matters = None, False, hot or guards
    m.counting, m.bound = m.gate_matters and _resets(node), None
    taken = test(m, node.test, scope, prefer=not guards, worth=hot)
    m.counting = False
    gate, hung = m.seen_gate, m.hung
    m.seen_gate, m.gate_matters = None, False
    body = node.body if taken else node.orelse
    if hung and guards and _cuts(m, node):
        for loop in m.loops[-1:]:
            loop.unsure = True  # it may well end where a window does
    if hung and body:
        _assume(m, node, body, taken, scope)
    if gate is not None and guards and not taken and m.loops:
        m.loops[-1].guard = gate
    if gate is not None:
        m.gates.append(gate)
        try:
            return m.run(body, scope)
        finally:
            m.gates.pop()
    return m.run(body, scope)


def _cuts(m: Machine, node: ast.If) -> bool:
    """Say whether a guard keeps some batches of an epoch out. A limit on a count that runs on
    over epochs ends the whole training, and says nothing about where an epoch ends.
    """
    if isinstance(node.body[-1], ast.Continue):
        return m.bound is not None
    return isinstance(node.body[-1], ast.Break) and m.bound == "index"


def _resets(node: ast.If) -> bool:
    """Say whether a branch assigns what its condition counts."""
    tested = {
        ast.unparse(part)
        for part in ast.walk(node.test)
        if isinstance(part, ast.Name | ast.Attribute)
    }
    for statement in node.body:
        for part in ast.walk(statement):
            targets: list[ast.expr] = []
            if isinstance(part, ast.Assign):
                targets = part.targets
            elif isinstance(part, ast.AugAssign):
                targets = [part.target]
            if any(ast.unparse(target) in tested for target in targets):
                return True
    return False


def _assume(
    m: Machine, node: ast.If, body: Sequence[ast.stmt], taken: bool, scope: Scope
) -> None:
    at = (str(node.lineno), id(scope.module))
    if at not in m.decisions.assumed:
        m.decisions.assumed[at] = Assumption(
            key=at[0],
            text=ast.unparse(node.test),
            holds=taken,
            module=scope.module,
            first=body[0].lineno,
            last=body[-1].end_lineno or body[-1].lineno,
            node=node.test,
        )


def _try(m: Machine, node: ast.Try, scope: Scope) -> int | None:
    signal = m.run(node.body, scope)
    if signal == RAISE and node.handlers:
        signal = m.run(node.handlers[0].body, scope)
    elif signal is None:
        signal = m.run(node.orelse, scope)
    last = m.run(node.finalbody, scope)
    return last if last is not None else signal


def _match(m: Machine, node: ast.Match, scope: Scope) -> int | None:
    m.ev(node.subject, scope)
    # The first case that is no guard; nothing is known about what the subject looks like.
    for case in node.cases:
        if not leaves(case.body):
            return m.run(case.body, scope)
    return None


def _break(m: Machine, node: ast.Break, scope: Scope) -> int | None:
    return BREAK


def _continue(m: Machine, node: ast.Continue, scope: Scope) -> int | None:
    return CONTINUE


def _raise(m: Machine, node: ast.Raise, scope: Scope) -> int | None:
    return RAISE


def _return(m: Machine, node: ast.Return, scope: Scope) -> int | None:
    m.returned = None if node.value is None else m.ev(node.value, scope)
    return RETURN


EXECUTE.update(
    {
        ast.If: _if,
        ast.Try: _try,
        ast.TryStar: _try,
        ast.Match: _match,
        ast.Break: _break,
        ast.Continue: _continue,
        ast.Raise: _raise,
        ast.Return: _return,
    }
)
