"""Stand-ins: where one element of a list stands for many, a loop has one turn for it.

`[SGD(m.parameters()) for m in models]` is one optimizer, whatever the number of models. Whoever
goes through it means each of them once; a second turn would happen to the first one again.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute.definitions import Instance
from instep.check.execute.levels import goes_down
from instep.check.execute.things import Net, Optimizer, Scheduler
from instep.check.execute.values import DictValue, ListValue, Unknown, unify
from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module, Scope
    from instep.check.execute.values import Value

MOST = 6
"""Elements of which each is looked at."""
_DEEPEST = 3
"""Objects inside objects that are searched for an optimizer."""
_MOST_INSIDE = 30
"""Attributes or elements that are looked at."""


class Turns:
    """What the variable of a loop has picked out of lists."""

    updated: int | None = None  # elements of the shortest list of optimizers, or of what has some
    called: int | None = None  # elements of the shortest list of models
    beyond = False  # this turn asks for an element that a list does not have

    def __init__(self, names: frozenset[str], scope: Scope, *, batches: bool) -> None:
        self.names = names
        self.scope = scope
        self.batches = batches  # what it goes through are batches, and go on

    def most(self, *, nested: bool) -> int | None:
        """Return how many turns there are elements for; None: any number.

        Where a training runs inside, its turns differ in more than the model.
        """
        known = [self.updated, None if nested else self.called]
        return min((count for count in known if count is not None), default=None)

    def took(self, found: Value, count: int) -> None:
        """Take note of an element of a list that has so many."""
        if has_optimizer(found):
            self.updated = count if self.updated is None else min(count, self.updated)
        elif is_trained(found):
            self.called = count if self.called is None else min(count, self.called)


def begin(m: Machine, target: ast.AST, scope: Scope, *, batches: bool = False) -> Turns:
    """Begin a loop; whoever does takes it from `m.turns` when it is left."""
    made = Turns(scope.module.read(names_in, target), scope, batches=batches)
    m.turns.append(made)
    return made


def names_in(node: ast.AST, _module: Module) -> frozenset[str]:
    """Return the names that are written somewhere in a node."""
    return frozenset(part.id for part in walk(node) if isinstance(part, ast.Name))


def _picked(m: Machine, node: ast.AST, scope: Scope) -> Turns | None:
    """Return the loop whose variable says which element a subscript gives."""
    if not m.turns or not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Name):
        return None
    name = node.slice.id
    owner: Scope | None = scope
    while owner is not None and name not in owner.names:
        owner = owner.outer
    around = reversed(m.turns)
    return next((turns for turns in around if name in turns.names and turns.scope is owner), None)


def took(
    m: Machine,
    node: ast.AST,
    value: ListValue | DictValue,
    at: Value,
    found: Value,
    *,
    scope: Scope,
) -> None:
    """Take note of an element that the variable of a loop has picked."""
    turns = _picked(m, node, scope)
    counts = isinstance(at, int) and isinstance(value, ListValue)
    if turns is not None:
        turns.took(found, len(value.items) if counts else 1)
    elif counts and at and not -len(value.items) <= at < len(value.items) and is_trained(found):
        _beyond(m, node, at, found, scope)
    elif len(value.items) > 1 and has_optimizer(found):
        _one_of_several(m, node, value, at, found, scope=scope)


def _beyond(m: Machine, node: ast.AST, at: int, found: Value, scope: Scope) -> None:
    """Take note of an element that is not there: a loop around has handed its number to a function
    and ends with the turn before, or else it is not known which one is meant.
    """
    for turns in reversed(m.turns):
        if not turns.batches and any(turns.scope.names.get(name) == at for name in turns.names):
            turns.beyond = True
            return
    held = optimizers_in(found)
    if held:
        m.note("opaque", node, scope, what=scope.module.spelled(node), values=held)


def _one_of_several(
    m: Machine,
    node: ast.AST,
    value: ListValue | DictValue,
    at: Value,
    found: Value,
    *,
    scope: Scope,
) -> None:
    """Take note of an element that is taken by a key that is not known: what is taken by another
    one is another element, for all that can be said, though the first stands for both here.
    """
    key = repr(at) if isinstance(at, str | int) else at.key if isinstance(at, Unknown) else None
    if key is None:
        return
    if value.picked is None:
        if isinstance(at, Unknown):
            value.picked = key
    elif value.picked != key:
        held = optimizers_in(found)
        m.note("opaque", node, scope, what=scope.module.spelled(node), values=held)


def is_trained(value: Value) -> bool:
    """Say whether something is a model or an optimizer, or has an optimizer."""
    return isinstance(unify(value), Net) or has_optimizer(value)


def has_optimizer(value: Value) -> bool:
    """Say whether something is an optimizer or its scheduler, or has one: an agent, a pair."""
    return bool(optimizers_in(value))


@goes_down
def optimizers_in(value: Value, deep: int = _DEEPEST) -> list[Optimizer]:
    """Return the optimizers that something is, schedules or has."""
    value = unify(value)
    if isinstance(value, Optimizer):
        return [value]
    inside: list[Value] = []
    if isinstance(value, Scheduler):
        inside = [value.optimizer]
    elif isinstance(value, tuple):
        inside = list(value)
    elif isinstance(value, ListValue):
        inside = value.items
    elif isinstance(value, DictValue):
        inside = list(value.items.values())
    elif isinstance(value, Instance | Net):
        inside = list(value.attrs.values())
    if not deep:
        return []
    return [one for part in inside[:_MOST_INSIDE] for one in optimizers_in(part, deep - 1)]
