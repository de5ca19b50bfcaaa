"""The paths of a module: from every entry that nothing else has covered, with every decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import starting, tables
from instep.check.execute.lengths import Lengths
from instep.check.execute.machine import ExhaustedError, Machine, RestartError
from instep.check.execute.settle import Settler
from instep.check.execute.settle_surroundings import goes_back
from instep.trace import LossKept, Trace

if TYPE_CHECKING:
    import ast

    from instep.check.execute.decisions import Assumption, Undecided
    from instep.check.execute.journal import Note
    from instep.check.execute.program import Module, Project
    from instep.check.execute.starting import Entry
    from instep.trace import Event, Place

tables.install()
BUDGET = 12_000
"""Statements of one path."""
FILE_BUDGET = 60_000
"""Statements of all paths of a file."""
_MOST_FLIPS = 6
_FLIPPED = 4_000
"""Statements that the other paths of an entry may take, each as many as the first. With twice as
many, one note more was found in 381 public repositories."""
_MOST_RESTARTS = 6
_MOST_FILES = 24
"""Of a project, for one file of it."""
_SHOWN = frozenset({"backward", "step", "zero", "clip", "called", "opaque", "schedule"})
"""Notes that a trace is worth making for."""


class Path:
    """One finished path: its trace, and what it rests on."""

    def __init__(
        self, trace: Trace, assumptions: list[Assumption], forced: Undecided | None, entry: str
    ) -> None:
        self.trace = trace
        self.assumptions = assumptions
        self.forced = forced
        self.entry = entry
        self.unseen = False
        """Whether loops have branches with events of which no path was followed."""


class Run:
    """All paths of a module."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.problems: list[tuple[str, ast.AST]] = []


class Runner:
    """Executes a module from every entry that nothing else has covered."""

    def __init__(self, module: Module, project: Project) -> None:
        self.module = module
        self.project = project
        self.lengths = Lengths()
        self.covered: set[ast.AST] = set()
        self.run = Run()
        self.left = FILE_BUDGET
        self.needed: set[Place] = set()  # where losses are kept that some path goes back through
        self._borrow(module, {module})

    def _borrow(self, module: Module, seen: set[Module]) -> None:
        """Tell a module which of the names it imports from the project cause events."""
        for node in module.scan.imports:
            for found in self.project.meant(module, node):
                if found not in seen and len(seen) < _MOST_FILES:
                    seen.add(found)
                    self._borrow(found, seen)
                module.scan.learn({n for n in found.scan.hot_names if not n.startswith("__")})

    def all(self) -> Run:
        """Return the paths of all entries."""
        self._entry(starting.Entry("<module>"))
        for entry in starting.entries_of(self.module):
            if entry.code not in self.covered and self.left > 0:
                self._entry(entry)
        if self.needed:
            for path in self.run.paths:
                path.trace = Trace(event for event in path.trace if not self._is_needed(event))
        if self.left <= 0:
            self.run.problems.append(
                ("the file has more paths than are followed", self.module.tree)
            )
        return self.run

    def _is_needed(self, event: Event) -> bool:
        return isinstance(event, LossKept) and event.place in self.needed

    def _entry(self, entry: Entry) -> None:
        before, first = self.left, len(self.run.paths)
        base = self._path(entry, None)
        if base is None:
            return
        flips = base.decisions.flips()
        most = _flips(before - self.left)
        while flips and most > 0 and self.left > 0:
            self._path(entry, flips.pop(0))
            most -= 1
        if 2 in self.lengths.moduli and self.left > 0:
            # A window of two has but one short form: it shows at an odd length or at an even one.
            self.lengths.shift = 1
            self._path(entry, None)
            self.lengths.shift = 0
        unseen = any(flip.key in base.decisions.looping for flip in flips)
        for path in self.run.paths[first:]:
            path.unseen = unseen

    def _path(self, entry: Entry, forced: Undecided | None) -> Machine | None:
        for _ in range(_MOST_RESTARTS):
            budget = min(BUDGET, max(self.left, 0))
            m = Machine(self.project, self.lengths, forced, budget)
            try:
                starting.execute(m, self.module, entry)
            except RestartError:
                self.left -= budget - m.budget
                continue
            except ExhaustedError:
                self._give_up(entry, "takes too many steps", budget)
                return None
            except RecursionError:
                self._give_up(entry, "is nested too deeply", budget)
                return None
            self.left -= budget - m.budget
            self._finish(m, entry, forced)
            return m
        return None

    def _give_up(self, entry: Entry, why: str, budget: int) -> None:
        self.left -= budget
        node = entry.code if entry.code is not None else self.module.tree
        self.run.problems.append((f"`{entry.name}` {why} to follow", node))

    def _finish(self, m: Machine, entry: Entry, forced: Undecided | None) -> None:
        kinds = {note.kind for note in m.notes}
        if "opaque" not in kinds or not any(map(_is_blind, m.notes)):
            self.covered |= m.covered  # beside something unknown it is better judged by itself
        if m.summed:
            self.needed.update(
                note.module.place(note.node)
                for note in m.notes
                if note.kind == "kept" and goes_back(m, note.data["tensor"], note.data["into"])
            )
        if not _SHOWN.isdisjoint(kinds):
            trace = Settler(m).trace()
            assumptions = list(m.decisions.assumed.values())
            self.run.paths.append(Path(trace, assumptions, forced, entry.name))
        self.run.problems.extend(
            (reason, node) for reason, (node, module) in m.problems.items() if module is self.module
        )


def _is_blind(note: Note) -> bool:
    """Say whether something unknown has happened that may concern everything."""
    return note.kind == "opaque" and note.data["values"] is None


def _flips(cost: int) -> int:
    """Return how many decisions are taken the other way, where a path costs so many statements.

    >>> _flips(10), _flips(1_500), _flips(50_000)
    (6, 2, 1)
    """
    return min(_MOST_FLIPS, max(1, _FLIPPED // max(cost, 1)))
