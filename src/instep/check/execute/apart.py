"""Trainings that stand apart: calls that are given settings alone, and touch nothing outside.

A test script, or one that compares settings, trains many times, each time from the start. Where a
decision is taken the other way, all those that do not ask for it show again what they have shown.
They are passed over: what a call asks and uses is written down while it is executed, and on another
path it is executed only if some of that is another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.check.execute.definitions import Class, Function
from instep.check.execute.values import Ref

if TYPE_CHECKING:
    import ast
    from collections.abc import Hashable

    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module
    from instep.check.execute.values import Value

_EVERY_TWO = 2
"""A window of two is looked at twice, at an odd and at an even length."""


class Trainings:
    """The calls of one path that stand apart."""

    def __init__(self, seen: dict[Hashable, Training] | None) -> None:
        self.seen = {} if seen is None else seen
        """Those of another path, which need not be gone through again."""
        self.kept: dict[Hashable, Training] = {}
        self.open: Training | None = None
        """One that may stand apart, and is being executed."""
        self.count = 0
        """How many do, those that were passed over among them."""


class Training:
    """A call that stands apart, as far as it was followed: what it hangs on, and what it leaves."""

    def __init__(self, m: Machine, key: Hashable) -> None:
        self.key = key
        self.outer = m.apart.open  # what it is a part of
        self.is_apart = True
        # What it hangs on.
        self.length = m.lengths.length
        self.moduli: set[int] = set()
        self.names: dict[tuple[Module, str], Value] = {}
        self.asked: dict[str, bool] = {}  # conditions, and whether they were decided before
        self.answers: dict[str, bool | None] = {}
        # What it leaves; until it ends, what was there before.
        self.cost = m.budget
        self.iterations = m.serial
        self.covered: set[ast.AST] = set()
        self.epochs: dict[ast.AST, int] = dict(m.epochs)
        self.sites: dict[ast.AST, int] = dict(m.sites)
        self.managed = m.managed
        self.epochal = m.epochal
        self._handed, self._tokens = len(m.handed), m.tokens
        self._notes, self._counters = len(m.notes), len(m.counters)

    def use(self, name: str, module: Module, value: Value) -> None:
        """Take note of a name of a module that is used in it."""
        self.names[module, name] = value

    def end(self, m: Machine, result: Value) -> bool:
        """Write down what it leaves; false if it does not stand apart."""
        blind = any(
            note.kind == "opaque" and note.data["values"] is None for note in m.notes[self._notes :]
        )
        same = (self._handed, self._tokens, self._counters) == (
            len(m.handed), m.tokens, len(m.counters),
        )  # fmt: skip
        lasting = all(_is_lasting(value) for value in self.names.values())
        if blind or not same or not lasting or result is not None or not self.is_apart:
            return False
        self.answers = {key: m.decisions.made.get(key) for key in self.asked}
        self.cost -= m.budget
        self.iterations = m.serial - self.iterations
        self.epochs = _more(self.epochs, m.epochs)
        self.sites = _more(self.sites, m.sites)
        self.managed, self.epochal = m.managed, m.epochal
        return True

    def take(self, part: Training) -> None:
        """Hang on everything that a part of it hangs on."""
        self.is_apart = self.is_apart and part.is_apart
        self.moduli |= part.moduli
        self.names.update(part.names)
        self.covered |= part.covered
        for key, before in part.asked.items():
            self.asked.setdefault(key, before)

    def is_same(self, m: Machine) -> bool:
        """Say whether it would happen again as it has happened."""
        if m.lengths.length != self.length or (m.lengths.shift and _EVERY_TWO in self.moduli):
            return False
        decisions = m.decisions
        for key, answer in self.answers.items():
            known = decisions.made.get(key)
            if self.asked[key] or answer is None:
                if known != answer:
                    return False
            elif known is not None or decisions.forced.get(key, answer) != answer:
                return False
        return all(
            _is_alike(value, m.lookup(name, m.scope_of(module)))
            for (module, name), value in self.names.items()
        )

    def pass_over(self, m: Machine) -> None:
        """Leave what it would leave, but for its events."""
        m.budget -= self.cost
        m.serial += self.iterations
        m.covered |= self.covered
        m.managed, m.epochal = self.managed, self.epochal or m.epochal
        for node, count in self.epochs.items():
            m.epochs[node] = m.epochs.get(node, 0) + count
        for node, count in self.sites.items():
            m.sites[node] = m.sites.get(node, 0) + count
        for key, answer in self.answers.items():
            if answer is not None:
                m.decisions.made[key] = answer


def key_of(m: Machine, function: Function, call: Call) -> Hashable | None:
    """Return what a call that may stand apart is the same by; None if it cannot."""
    if m.loops or m.gates or m.no_grad or m.accumulating is not None:
        return None
    if function.bound is not None or function.scope.outer is not None or function.wraps_no_grad:
        return None
    values = call.inputs
    if not all(value is None or isinstance(value, bool | int | float | str) for value in values):
        return None
    kinds = tuple(type(value) for value in values)  # 1 is True, and means something else
    return function.code, kinds, tuple(call.args), tuple(call.kwargs.items()), len(m.things)


def is_passed_over(m: Machine, key: Hashable) -> bool:
    """Pass over a call that another path has shown; otherwise begin to write down what it does."""
    seen = m.apart.seen.get(key)
    if seen is not None and seen.is_same(m):
        seen.pass_over(m)
        m.apart.count += 1
        if m.apart.open is not None:
            m.apart.open.take(seen)
        return True
    m.apart.open = opened = Training(m, key)
    m.decisions.asked = opened.asked
    return False


def end(m: Machine, *, result: Value, is_left: bool) -> None:
    """Keep what was written down for other paths, if the call stands apart; `is_left` says that it
    was left by an exception.
    """
    training = m.apart.open
    if training is None:
        return
    m.apart.open = outer = training.outer
    m.decisions.asked = None if outer is None else outer.asked
    if not is_left and training.end(m, result):
        m.apart.kept[training.key] = training
        m.apart.count += 1
    if outer is not None:
        outer.take(training)


def _is_lasting(value: Any) -> bool:
    """Say whether a value is the same for whoever uses it, and whenever."""
    if isinstance(value, Function | Class):
        return not value.attrs and value.scope.outer is None
    if isinstance(value, Ref):
        return value.is_untouched()
    return value is None or isinstance(value, bool | int | float | str)


def _is_alike(one: Value, other: Value) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Function) and isinstance(other, Function):
        return one.code is other.code and not other.attrs
    if isinstance(one, Class) and isinstance(other, Class):
        return one.code is other.code and not other.attrs
    if isinstance(one, Ref) and isinstance(other, Ref):
        return one.path == other.path and other.is_untouched()
    return bool(one == other)


def _more(before: dict[ast.AST, int], after: dict[ast.AST, int]) -> dict[ast.AST, int]:
    return {
        node: count - before.get(node, 0)
        for node, count in after.items()
        if count != before.get(node)
    }
