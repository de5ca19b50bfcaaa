"""Branches: what is taken of an `if`, a `try` or a `match`, and what leaves a block."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from instep.check.execute import conditions
from instep.check.execute.decisions import Assumption
from instep.check.execute.machine import BREAK, CONTINUE, RAISE, RETURN
from instep.check.execute.standins import names_in
from instep.trace.pattern import pattern
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module, Scope

_LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)
_DATA = pattern(r"loss|nan|inf|finite|norm", re.IGNORECASE)
_EXITS = frozenset({"exit", "quit"})
_ON_THE_WAY = frozenset({"backward", "step", "unscale_", "zero_grad"})
"""What an update goes through, of one piece or of several: without it there is something to see."""


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Say whether a block ends by leaving: a guard."""
    return bool(body) and isinstance(body[-1], _LEAVES)


def _exits(body: Sequence[ast.stmt]) -> bool:
    """Say whether a block ends the program: sys.exit(), exit()."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        func = last.value.func
        return getattr(func, "attr", None) == "exit" or getattr(func, "id", None) in _EXITS
    return False


def if_(m: Machine, node: ast.If, scope: Scope) -> int | None:
    """Execute an `if`."""
    scan = scope.module.scan
    guards = scope.module.read(_guards, node)
    hot = scan.any_hot(node.body) or scan.any_hot(node.orelse)
    matters = hot or guards
    m.ask(matters=matters, counting=matters and _resets(node, scope.module))
    worth = hot and not scope.module.read(_asks_for_frozen, node.test)
    worth = worth and not scope.module.read(_is_for_several, node)
    worth = worth and not scope.module.read(_only_clears, node)
    taken = conditions.test(m, node.test, scope, prefer=not guards, worth=worth)
    gate = m.answer()
    body = node.body if taken else node.orelse
    if m.ended and gate is None and not taken and m.loops and _ends(node):
        m.loops[-1].limited = True  # at a number that is too far away to be counted up to
    if m.hung:
        if guards and m.loops and _cuts(m, node):
            m.loops[-1].unsure = True  # it may well end where a window does
        elif guards and m.loops and isinstance(node.body[-1], ast.Break):
            m.loops[0].limited = True
        if body:
            _assume(m, node, body, scope.module, holds=taken)
    if gate is None:
        waits = taken and m.hung and m.bound == "index" and _is_turn(m, node.test, scope.module)
        return _later(m, body, scope) if waits else m.run(body, scope)
    if guards and not taken and m.loops:
        m.loops[-1].guard = gate
    m.gates.append(gate)
    try:
        return m.run(body, scope)
    finally:
        m.gates.pop()


def _asks_for_frozen(test: ast.expr, _module: Module) -> bool:
    """Say whether a condition leaves frozen parameters out: nobody trains where all of them are."""
    parts = walk(test)
    return any(isinstance(part, ast.Attribute) and part.attr == "requires_grad" for part in parts)


def _is_for_several(node: ast.If, module: Module) -> bool:
    """Say whether a branch is for windows of more than one piece, and only changes what these have
    added up: where there is one piece, there is nothing to see.
    """
    match node.test:
        case ast.Compare(ops=[ast.Gt() | ast.NotEq()], comparators=[ast.Constant(value=1)]):
            pass
        case ast.Compare(ops=[ast.GtE()], comparators=[ast.Constant(value=2)]):
            pass
        case _:
            return False
    names = {name for statement in node.body for name in module.scan.names(statement)}
    return not node.orelse and names.isdisjoint(_ON_THE_WAY)


def _only_clears(node: ast.If, module: Module) -> bool:
    """Say whether all that a branch does is to clear: who can switch that off means to."""
    names = {name for statement in node.body for name in module.scan.names(statement)}
    return "zero_grad" in names and names <= {"zero_grad"} and not node.orelse


def _is_turn(m: Machine, test: ast.expr, module: Module) -> bool:
    """Say whether a condition asks how far a loop is."""
    asked = module.read(names_in, test)
    turns = (loop.node.target for loop in m.loops if isinstance(loop.node, ast.For))
    return any(not asked.isdisjoint(module.read(names_in, turn)) for turn in turns)


def _later(m: Machine, body: Sequence[ast.stmt], scope: Scope) -> int | None:
    """Run what waits for a turn that is not known. A schedule that begins there, without its
    updates, may well have had updates before.
    """
    before = len(m.notes)
    signal = m.run(body, scope)
    notes = m.notes[before:]
    if not any(note.kind == "step" for note in notes):
        for note in notes:
            if note.kind == "schedule":
                note.data["scheduler"].skippable = True
    return signal


def _guards(node: ast.If, module: Module) -> bool:
    """Say whether a branch is there to leave: what stands behind it is what usually happens."""
    leaves = (_leaves(node.body) or _exits(node.body)) and not _leaves(node.orelse)
    # Asked of the first of several branches before it is asked of the others.
    chooses = _chooses(node, module)
    return (leaves and not chooses) or _gives_up(node, module)


def _chooses(node: ast.If, module: Module) -> bool:
    """Say whether a branch is one of several that give something back: none of them is a guard."""
    other = node.orelse[0] if len(node.orelse) == 1 else None
    if isinstance(other, ast.If) and _gives(node) and _gives(other):
        module.choices.add(node)
        module.choices.add(other)
    return node in module.choices


def _gives(node: ast.If) -> bool:
    last = node.body[-1]
    return isinstance(last, ast.Return) and isinstance(last.value, ast.Call | ast.BinOp)


def _ends(node: ast.If) -> bool:
    """Say whether a branch ends a loop."""
    return bool(node.body) and isinstance(node.body[-1], ast.Break)


def _gives_up(node: ast.If, module: Module) -> bool:
    """Say whether a branch throws away what it has because of a number that came out wrong."""
    if node.orelse or _DATA.search(module.spelled(node.test)) is None:
        return False
    names = {name for statement in node.body for name in module.scan.names(statement)}
    return "zero_grad" in names and names.isdisjoint({"backward", "step"})


def _cuts(m: Machine, node: ast.If) -> bool:
    """Say whether a guard keeps some batches of an epoch out. A limit on a count that runs on
    over epochs ends the whole training, and says nothing about where an epoch ends.
    """
    if isinstance(node.body[-1], ast.Continue):
        return m.bound is not None
    return isinstance(node.body[-1], ast.Break) and m.bound == "index"


def _resets(node: ast.If, module: Module) -> bool:
    """Say whether a branch assigns what its condition counts."""
    found = module.resets.get(node)
    if found is None:
        tested = {
            module.spelled(part)
            for part in walk(node.test)
            if isinstance(part, ast.Name | ast.Attribute)
        }
        found = module.resets[node] = any(
            module.spelled(target) in tested
            for statement in node.body
            for part in walk(statement)
            for target in _targets(part)
        )
    return found


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign) else []


def _assume(
    m: Machine, node: ast.If, body: Sequence[ast.stmt], module: Module, *, holds: bool
) -> None:
    """Write down which branch was taken the first time, and on what condition."""
    if node not in m.decisions.assumed:
        m.decisions.assumed[node] = Assumption(
            text=module.spelled(node.test),
            holds=holds,
            module=module,
            first=body[0].lineno,
            last=body[-1].end_lineno or body[-1].lineno,
            node=node.test,
        )


def try_(m: Machine, node: ast.Try, scope: Scope) -> int | None:
    """Execute a `try`: nothing fails but what the source raises."""
    signal = m.run(node.body, scope)
    if signal == RAISE and node.handlers:
        signal = m.run(node.handlers[0].body, scope)
    elif signal is None:
        signal = m.run(node.orelse, scope)
    last = m.run(node.finalbody, scope)
    return last if last is not None else signal


def match_(m: Machine, node: ast.Match, scope: Scope) -> int | None:
    """Execute a `match`."""
    m.ev(node.subject, scope)
    # The first case that is no guard; nothing is known about what the subject looks like.
    for case in node.cases:
        if not _leaves(case.body):
            return m.run(case.body, scope)
    return None


def break_(_m: Machine, _node: ast.Break, _scope: Scope) -> int | None:
    """Execute a `break`."""
    return BREAK


def continue_(_m: Machine, _node: ast.Continue, _scope: Scope) -> int | None:
    """Execute a `continue`."""
    return CONTINUE


def raise_(_m: Machine, _node: ast.Raise, _scope: Scope) -> int | None:
    """Execute a `raise`."""
    return RAISE


def return_(m: Machine, node: ast.Return, scope: Scope) -> int | None:
    """Execute a `return`."""
    m.returned = None if node.value is None else m.ev(node.value, scope)
    return RETURN
