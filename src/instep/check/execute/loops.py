"""Loops: how often a body runs, what its variable stands for, and when an epoch ends."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import (
    assignment,
    conditions,
    grads,
    hooks,
    items,
    numbers,
    roles,
    standins,
)
from instep.check.execute.iterables import PLAIN, source_of
from instep.check.execute.journal import FEW, Loop, Note
from instep.check.execute.machine import BREAK, CONTINUE, RAISE, RETURN
from instep.check.execute.scan import calls_each
from instep.check.execute.things import Optimizer
from instep.check.execute.values import LENGTH, Unknown, written
from instep.trace.pattern import pattern
from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.check.execute.iterables import Source
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module, Scope
    from instep.check.execute.standins import Turns
    from instep.check.execute.values import Thing, Value

EPOCHS = 2
_CARRIED = pattern(r"detach|hidden|memory|memories|bptt|repackage")
"""What pieces of a sequence hand on: each may well have an update of its own."""
_MOST_KNOWN = 8
"""Iterations of an inner loop of a known length that are all run."""


def for_(m: Machine, node: ast.For, scope: Scope) -> int | None:
    """Execute a `for`."""
    source = source_of(m, node, m.ev(node.iter, scope), scope)
    if m.loops and calls_each(node):
        hooks.handed_in(m, node, source, scope)
    if source.kind == "things":
        return _through(m, node, source, scope)
    if source.kind == "params" or not scope.module.scan.any_hot(node.body):
        return _once(m, node, source, scope)
    loop = enter(m, node, source.kind, source.origin)
    loop.literal, loop.cycled = source.literal, source.cycled
    loop.few = source.literal and source.length is not None and source.length <= FEW
    if source.bound is not None:
        m.look_up(source.bound, scope.module)
        loop.written = written(source.bound)
    loop.supposed = source.literal and source.length == 1 and _is_supposed(m)
    loop.text = scope.module.spelled(node.iter)
    loop.name = scope.module.spelled(node.target)
    cut = source.strided and not _CARRIED.search(scope.module.text(node))
    named = loop.text in roles.PATCHES or loop.name in roles.PATCHES
    named = named or _is_unfolded(node.iter, scope.module)
    loop.patches, loop.sliced = cut or named, not named
    loop.again = loop.patches and _comes_again(node, loop, scope.module)
    standins.begin(m, node.target, scope, batches=source.kind == "loader")
    try:
        return _iterate(m, node, source, loop, scope)
    finally:
        m.loops.pop()
        m.turns.pop()


def _is_unfolded(node: ast.expr, module: Module) -> bool:
    """Say whether what is gone through was made by `unfold`, which cuts images into patches."""
    unfolded = module.read(_unfolded, module.tree)
    return bool(unfolded) and not module.read(_names, node).isdisjoint(unfolded)


def _unfolded(tree: ast.Module, module: Module) -> set[str]:
    """Return the names that are given what `unfold` makes."""
    if "unfold(" not in module.unit.text:
        return set()
    return {
        target.id
        for part in walk(tree)
        if isinstance(part, ast.Assign)
        and any(isinstance(of, ast.Attribute) and of.attr == "unfold" for of in walk(part.value))
        for target in part.targets
        if isinstance(target, ast.Name)
    }


def _is_supposed(m: Machine) -> bool:
    """Say whether a branch that may not be taken sets something to 1, as for a test run."""
    return any(
        assumption.first <= line <= assumption.last
        for assumption in m.decisions.assumed.values()
        for line in assumption.module.read(_ones, assumption.module.tree)
    )


def _ones(tree: ast.Module, _module: Module) -> list[int]:
    """Return the lines in which something is set to 1."""
    return [
        part.lineno
        for part in walk(tree)
        if isinstance(part, ast.Assign)
        and isinstance(part.value, ast.Constant)
        and part.value.value == 1
    ]


def _comes_again(node: ast.For, loop: Loop, module: Module) -> bool:
    """Say whether the loop around only repeats this one, as the epochs of PPO do with a rollout.

    Where its variable is used, or could be handed over, it may well say which row of an image is
    cut into pieces here.
    """
    outer = loop.outer
    if outer is None or outer.kind != "range" or outer.patches:
        return False
    around = outer.node
    if not isinstance(around, ast.For) or node not in module.read(_parts, around):
        return False
    used = module.read(_names, around.target) & module.read(_names, node)
    return _is_epoch(outer.name) or not used


def _parts(node: ast.AST, _module: Module) -> set[ast.AST]:
    return set(walk(node))


def _names(node: ast.AST, _module: Module) -> set[str]:
    return {part.id for part in walk(node) if isinstance(part, ast.Name)}


def enter(m: Machine, node: ast.AST, kind: str, origin: Thing | None) -> Loop:
    """Begin a loop; whoever does takes it from `m.loops` when it is left."""
    outer = m.loops[-1] if m.loops else None
    loop = Loop(node, kind, origin, outer, start=m.serial)
    for around in m.loops:
        around.nested = True
    m.loops.append(loop)
    return loop


def begin(m: Machine, node: ast.AST, loop: Loop, index: int, scope: Scope) -> Note:
    """Begin an iteration."""
    m.serial += 1
    loop.index, loop.guard = index, None
    return m.note("drawn", node, scope, loop=loop, index=index)


def _iterate(m: Machine, node: ast.For, source: Source, loop: Loop, scope: Scope) -> int | None:
    index, turns = 0, m.turns[-1]
    before, drawn = len(m.notes), list[Note]()
    _guess(m, node, source, loop, scope)
    planned = source.length if source.length == 0 else None
    if source.bound is not None and numbers.number(source.bound) is not None:
        loop.length = source.length
    if loop.kind == "loader" and loop.length is None:
        loop.length = source.length if source.length is not None else m.lengths.short()
    gates = 0
    while planned is None or index < planned:
        assignment.step_to(m, node.target, source.element(index), scope)
        drawn.append(begin(m, node, loop, index, scope))
        start = len(m.notes)
        signal = m.run(node.body, scope)
        if turns.beyond:
            del m.notes[start:]  # there is no such turn
            return _leave(m, node, before, drawn, scope)
        index += 1
        if signal == BREAK:
            return None
        if signal in {RETURN, RAISE}:
            return signal
        if index == 1 or len(loop.moduli) != gates:
            planned, gates = _plan(m, source, loop), len(loop.moduli)
            loop.length = planned
        if _is_through(source, loop, turns, index):
            return _leave(m, node, before, drawn, scope)
    if not source.endless and (loop.outer is not None or loop.kind != "range"):
        epoch = m.epochs.get(node, 0)
        m.epochs[node] = epoch + 1
        m.note("epoch-end", node, scope, loop=loop, epoch=epoch, batches=index)
    return m.run(node.orelse, scope)


def _leave(m: Machine, node: ast.For, before: int, drawn: list[Note], scope: Scope) -> int | None:
    """End a loop that went through models or optimizers: what it drew were no batches."""
    m.notes[before:] = [note for note in m.notes[before:] if note not in drawn]
    return m.run(node.orelse, scope)


def _is_through(source: Source, loop: Loop, turns: Turns, index: int) -> bool:
    """Say whether every model or optimizer that a loop goes through has had its turn."""
    if turns.batches:
        return False
    if index == 1:
        for value in source.standing:
            turns.took(value, 1)
    most = turns.most(nested=loop.nested)
    return most is not None and index >= most


def _guess(m: Machine, node: ast.For, source: Source, loop: Loop, scope: Scope) -> None:
    """Take the unknown bound of a range for a number before anything is compared with it: as many
    iterations as the loop is going to have.
    """
    bound = source.bound
    if loop.kind != "range" or source.length is not None or not isinstance(bound, Unknown):
        return
    element = source.element(0)
    first = element if isinstance(element, int) else 0
    if _is_epoch(loop.name):
        bound.count = EPOCHS + first
    elif scope.module.counts(node):
        bound.count = m.lengths.short()
    else:
        return
    source.length = bound.count - first


def _is_epoch(name: str) -> bool:
    return "epoch" in name.lower() or name in {"e", "ep"}


def _plan(m: Machine, source: Source, loop: Loop) -> int:
    """Say how many iterations show what a loop does, after its first one."""
    length = source.length
    gated = bool(loop.moduli)
    if loop.outer is None and loop.kind == "range" and (loop.nested or _is_epoch(loop.name)):
        m.epochal = True
    if loop.nested and loop.kind == "range":
        # What goes round a loop over data counts epochs, unless a gate hangs on it.
        counts = gated and not _is_epoch(loop.name)
        most = m.lengths.short() if counts else EPOCHS
        return min(most, length) if length is not None else most
    if length is not None and not isinstance(source.bound, Unknown):
        if gated:
            return m.lengths.like(length)
        return length if length <= _MOST_KNOWN and loop.outer is not None else min(length, PLAIN)
    if loop.kind == "range" and length is not None and isinstance(source.bound, Unknown):
        return length
    endless = loop.kind == "loader" or (loop.kind == "range" and gated and length is None)
    if isinstance(source.bound, Unknown) and not endless:
        return source.bound.number()
    return m.lengths.short() if gated or _is_asked(loop) else PLAIN


def _is_asked(loop: Loop) -> bool:
    """Say whether a loader's length was asked for, so that the loop has to have it."""
    return loop.kind == "loader" and loop.origin is not None and LENGTH in loop.origin.attrs


def _once(m: Machine, node: ast.For, source: Source, scope: Scope) -> int | None:
    """Run the body once, for what it assigns: nothing happens to gradients in it, or the same to
    each of some parameters.
    """
    if source.length == 0:
        return None
    if source.kind == "params":
        picks = scope.module.picks
        if node not in picks:
            picks[node] = grads.picking(node)
        m.picking |= picks[node]
    elif not source.literal:
        known = scope.module.adding
        if node not in known:
            known[node] = items.adding(node)
        m.itemwise |= known[node]
    around = m.loops[-1] if m.loops else None
    draws = around is not None and around.draws
    signal = _first(m, node, source, scope)
    if around is not None:
        around.draws = draws  # what is drawn here is drawn by this loop, as in a validation
    return signal if signal == RETURN else None


def _first(m: Machine, node: ast.For, source: Source, scope: Scope) -> int | None:
    turns = standins.begin(m, node.target, scope)
    index, most = 0, 1
    signal: int | None = None
    try:
        while index < most and signal in {None, CONTINUE}:
            assignment.assign(m, node.target, source.element(index), scope)
            signal = m.run(node.body, scope)
            index += 1
            most = _each(source, turns)
    finally:
        m.turns.pop()
    return signal


def _each(source: Source, turns: Turns) -> int:
    """Return how many turns give each known model its own: a loss may be a sum over all."""
    most = turns.most(nested=False)
    if source.kind != "range" or most is None:
        return 1
    return min(most, standins.MOST, source.length if source.length is not None else most)


def _through(m: Machine, node: ast.For, source: Source, scope: Scope) -> int | None:
    """Go through known things: optimizers, models, phases, numbers.

    Loops over settings inside of one another (a grid, a test of all combinations) vary one at a
    time, where each turn is a training of its own: their product shows nothing that they do not
    show alone.
    """
    length = source.length or 0
    settings = all(_is_setting(source.element(index)) for index in range(length))
    if settings and any(m.settings) and node in m.trainings:
        length = min(length, 1)
    before = len(m.notes)
    for index in range(length):
        assignment.assign(m, node.target, source.element(index), scope)
        m.things.append((id(node), index))
        if settings:
            m.settings.append(index)
        try:
            signal = m.run(node.body, scope)
        finally:
            m.things.pop()
            if settings:
                m.settings.pop()
        if signal == BREAK:
            return None
        if signal in {RETURN, RAISE}:
            return signal
    if settings and any(_makes_optimizer(note) for note in m.notes[before:]):
        m.trainings.add(node)
    return m.run(node.orelse, scope)


def _makes_optimizer(note: Note) -> bool:
    return note.kind == "made" and isinstance(note.data["thing"], Optimizer)


def _is_setting(value: Value) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def while_(m: Machine, node: ast.While, scope: Scope) -> int | None:
    """Execute a `while`."""
    hot = scope.module.scan.any_hot(node.body)
    loop = enter(m, node, "while", None) if hot else None
    most = PLAIN if hot else 1
    index = 0
    try:
        while index < most:
            if not conditions.test(m, node.test, scope, prefer=True, worth=False):
                return m.run(node.orelse, scope)
            if loop is not None:
                begin(m, node, loop, index, scope)
            else:
                m.serial += 1
            signal = m.run(node.body, scope)
            index += 1
            if signal == BREAK:
                return None
            if signal in {RETURN, RAISE}:
                return signal
            if loop is not None and index == 1:
                most = _plan_while(m, loop)
    finally:
        if loop is not None:
            m.loops.pop()
    return None


def _plan_while(m: Machine, loop: Loop) -> int:
    if loop.nested:
        m.epochal = m.epochal or loop.outer is None
        return PLAIN if loop.moduli else EPOCHS
    return m.lengths.short() * EPOCHS if loop.moduli else PLAIN
