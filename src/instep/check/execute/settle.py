"""The trace of a finished path: values become ids, and what was open then is decided."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING, Any

from instep.check.execute import numbers, settle_surroundings, settle_updates
from instep.check.execute.ids import Ids
from instep.check.execute.owners import Owners
from instep.check.execute.things import Optimizer
from instep.check.execute.values import Thing, Unknown
from instep.trace import Assumed, Created, GradEdited, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from instep.check.execute.journal import Note
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module
    from instep.check.execute.things import Net, Param
    from instep.trace import Event, Fact

    Held = tuple[str, ...] | None


class Settler:
    """Turns the notes of one path into events."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.owners = Owners(m.notes)
        self.ids = Ids(self.owners.holds)
        self.spelled: dict[ast.AST, str] = {}  # losses, by the calls that take them backward
        self.renewed: dict[ast.AST, frozenset[str]] = {}  # names, by the loops they begin anew in
        self._owning: dict[object, Held] = {}
        # Events that come again and again and of which no rule asks which one it is.
        self.same: dict[tuple[object, ...], Event] = {}
        self.unsure = any(
            note.data["loop"].unsure for note in m.notes if note.kind in {"drawn", "epoch-end"}
        )

    def trace(self) -> Trace:
        """Return the trace."""
        handlers = _handlers()
        events: list[Event] = []
        made: list[tuple[int, Thing]] = []  # before which event
        for at, note in enumerate(self.m.notes):
            self.owners.now = at
            if note.kind == "made":
                # Its place in the trace; it is described when everything is known.
                made.append((len(events), note.data["thing"]))
                continue
            repeating = settle_surroundings.REPEATING.get(note.kind)
            if repeating is not None:
                event = repeating(self, note.module.place(note.node), note.data)
                if event is not None:
                    events.append(event)
                continue
            handler = handlers.get(note.kind)
            if handler is not None:
                event = handler(self, note.module.place(note.node), **note.data)
                if event is not None:
                    events.append(event)
                    if note.kind in _ON_ONE:
                        events.extend(self._beside(event, note))
        placed = self._placed(events, made)
        return Trace([*self._head(), *placed])

    def _beside(self, event: Event, note: Note) -> Iterator[Event]:
        """Say that a clear or a step also concerns the optimizers of the same parameters: what it
        leaves in their windows is not theirs alone.
        """
        optimizer = note.data.get("optimizer")
        if isinstance(optimizer, Optimizer) and len(self.owners.optimizers) > 1:
            held = tuple(self.ids.of(other) for other in self.owners.beside(optimizer))
            if held:
                yield GradEdited(held, place=event.place)

    def _placed(self, events: list[Event], made: list[tuple[int, Thing]]) -> list[Event]:
        """Put the creation of what was seen being made where it happened, and all else first."""
        placed: list[Event] = []
        last = 0
        for at, thing in made:
            created = self.ids.created.pop(self.ids.known(thing) or "", None)
            if created is not None:
                placed += events[last:at]
                placed.append(created)
                last = at
        return placed + events[last:]

    def _head(self) -> Iterator[Event]:
        facts: dict[str, Fact] = {"source": "check"}
        if self.m.managed is not None:
            facts["managed"] = self.m.managed
        if self.m.partial:
            facts["partial"] = True
        if self.m.single:
            facts["single"] = True
        modules = {note.module for note in self.m.notes}
        torch = self._torch(modules)
        if torch is not None:
            facts["torch"] = torch
        if all(module.unit.kind == "markdown" for module in modules) and not self._is_whole():
            facts["sketch"] = True
        yield Created("job", "job", facts)
        yield from self.ids.created.values()
        for assumption in self.m.decisions.assumed.values():
            place = assumption.module.place(assumption.node)
            yield Assumed(assumption.text, assumption.holds, place=place)

    def _torch(self, modules: set[Module]) -> tuple[int, int] | None:
        """Return the torch that the code is for, where a rule asks for it and somebody says so."""
        if any(module.is_old for module in modules):
            return _OLD
        kinds = {note.kind for note in self.m.notes}
        if kinds.isdisjoint(_DATED):
            return None
        found = [self.m.project.torch_for(module) for module in modules]
        return max((torch for torch in found if torch is not None), default=None)

    def _is_whole(self) -> bool:
        """Say whether the making of an optimizer is to be seen: what begins after it leaves out
        what is not its subject.
        """
        return any(
            note.kind == "made" and isinstance(note.data["thing"], Optimizer)
            for note in self.m.notes
        )

    def owning(self, nets: frozenset[Net] | None) -> Held:
        """Return the ids of the optimizers that hold parameters of these models; None: unknown."""
        at = (nets, *self.owners.present())
        if at not in self._owning:
            found = self.owners.of(nets)
            self._owning[at] = None if found is None else tuple(map(self.ids.of, found))
        return self._owning[at]

    def owning_param(self, param: Param) -> Held:
        """Return the ids of the optimizers that hold some parameters; None: unknown."""
        return (
            self.owning(param.nets) if param.optimizer is None else (self.ids.of(param.optimizer),)
        )


_DATED = frozenset({"schedule", "grad-read"})
"""Notes of what was right with an older torch."""
_OLD = (0, 4)
_ON_ONE = frozenset({"step", "zero"})
"""Notes of what happens to one optimizer, and leaves something in the windows of others."""


@cache
def _handlers() -> dict[str, Callable[..., Event | None]]:
    return {**settle_updates.HANDLERS, **settle_surroundings.HANDLERS}


def multiplier(part: Any) -> float | None:
    """Return a multiplier as a number; an unknown one has one only if it counts something.

    >>> multiplier(0.5), multiplier((4, -1)), multiplier((None, -1))
    (0.5, 0.25, None)
    """
    if isinstance(part, (int, float)):
        return float(part)
    value, power = part
    number = _counted(value) if isinstance(value, Unknown) else value
    if not isinstance(number, (int, float)) or not number:
        return None
    return float(number) if power == 1 else 1.0 / number


def _counted(value: Unknown) -> Any:
    """Return the number that an unknown one is taken for; `more + 1` is one more than `more` is,
    which may have become known only after it was added.
    """
    if value.count is not None or value.formula is None:
        return value.count
    _, op, left, right, _ = value.formula
    one, two = numbers.number(left), numbers.number(right)
    if not isinstance(op, ast.Add | ast.Sub) or one is None or two is None:
        return None
    return numbers.compute(type(op), one, two)
