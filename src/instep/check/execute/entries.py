"""Where execution begins, what it has covered, and the paths that are worth another run."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from instep.check.execute import (
    api,
    attributes,
    calls,
    loops,
    statements,
    torch_api,
)
from instep.check.execute.machine import Exhausted, Lengths, Machine, Restart
from instep.check.execute.program import Module, Project, Scope
from instep.check.execute.settle import Settler
from instep.check.execute.values import Class, Function, Instance, Net, Optimizer, Unknown, Value

if TYPE_CHECKING:
    from instep.check.execute.decisions import Assumption
    from instep.check.execute.scan import Definition
    from instep.trace import Trace

api.install()
MOST_FLIPS = 6
BUDGET = 12_000
"""Statements of one path."""
FILE_BUDGET = 60_000
_MOST_RESTARTS = 6
_MOST_FILES = 24
"""Of a project, for one file of it."""
_FIRST = frozenset({"backward", "manual_backward", "zero_grad", "step", "optimizer_step"})


@dataclass
class Path:
    """One finished path: its trace, and what it rests on."""

    trace: Trace
    assumptions: list[Assumption]
    forced: dict[str, bool]
    entry: str
    problems: dict[str, ast.AST | None] = field(default_factory=dict)


@dataclass
class Run:
    """All paths of a module."""

    paths: list[Path] = field(default_factory=list)
    problems: list[tuple[str, ast.AST]] = field(default_factory=list)
    loops: int = 0


@dataclass
class _Entry:
    name: str
    code: Definition | None = None  # None: the module itself
    owner: ast.ClassDef | None = None


class Runner:
    """Executes a module from every entry that nothing else has covered."""

    def __init__(self, module: Module, project: Project) -> None:
        self.module = module
        self.project = project
        self.lengths = Lengths()
        self.covered: set[int] = set()
        self.run = Run()
        self.left = FILE_BUDGET
        self._borrow(module, {id(module)})

    def _borrow(self, module: Module, seen: set[int]) -> None:
        """Tell a module which of the names it imports from the project cause events."""
        for node in module.imports:
            for found in self._meant(module, node):
                if id(found) not in seen and len(seen) < _MOST_FILES:
                    seen.add(id(found))
                    self._borrow(found, seen)
                common = {name for name in found.scan.hot_names if not name.startswith("__")}
                module.scan.learn(common)

    def _meant(self, module: Module, node: ast.Import | ast.ImportFrom) -> list[Module]:
        if isinstance(node, ast.Import):
            found = [self.project.find(module, alias.name, 0) for alias in node.names]
        else:
            dotted = node.module or ""
            found = [self.project.find(module, dotted, node.level)]
            for alias in node.names:
                inner = f"{dotted}.{alias.name}".strip(".")
                found.append(self.project.find(module, inner, node.level))
        return [one for one in found if one is not None]

    def all(self) -> Run:
        """Return the paths of all entries."""
        self._entry(_Entry("<module>"))
        for entry in self._entries():
            if entry.code is not None and id(entry.code) not in self.covered and self.left > 0:
                self._entry(entry)
        if self.left <= 0:
            self.run.problems.append(("the file has more paths than are followed", self.module.tree))
        return self.run

    def _entries(self) -> list[_Entry]:
        scan = self.module.scan
        called = set().union(
            *(scan.names[id(code)] for code, _ in scan.definitions), *scan.uses.values()
        )
        found = []
        for code, owner in scan.definitions:
            names = scan.names[id(code)]
            if scan.hot_names.isdisjoint(names) or code.name in {"__init__"}:
                continue
            if id(code) in scan.generators or _is_autograd(owner, code):
                continue
            found.append(_Entry(code.name, code, owner))
        # Callers first: what they call is then covered, with arguments that are known.
        loops_inside = {id(e.code): _has_loop(e.code) for e in found}
        found.sort(
            key=lambda e: (
                e.name in called and not loops_inside[id(e.code)],
                e.name in called,
                not loops_inside[id(e.code)],
            )
        )
        return found

    def _entry(self, entry: _Entry) -> None:
        base = self._path(entry, {})
        if base is None:
            return
        flips = base.decisions.flips()[:MOST_FLIPS]
        for forced in flips:
            if self.left <= 0:
                break
            self._path(entry, forced)
        if 2 in self.lengths.moduli and self.left > 0:
            # A window of two has but one short form: it shows at an odd length or at an even one.
            self.lengths.shift = 1
            self._path(entry, {})
            self.lengths.shift = 0

    def _path(self, entry: _Entry, forced: dict[str, bool]) -> Machine | None:
        for _ in range(_MOST_RESTARTS):
            m = Machine(self.project, self.lengths, forced, min(BUDGET, max(self.left, 0)))
            budget = m.budget
            try:
                self._execute(m, entry)
            except Restart:
                self.left -= budget - m.budget
                continue
            except Exhausted:
                self.left -= budget
                node = entry.code if entry.code is not None else self.module.tree
                self.run.problems.append((f"`{entry.name}` takes too many steps to follow", node))
                return None
            except RecursionError:
                self.left -= budget
                node = entry.code if entry.code is not None else self.module.tree
                self.run.problems.append((f"`{entry.name}` is nested too deeply to follow", node))
                return None
            self.left -= budget - m.budget
            self._finish(m, entry, forced)
            return m
        return None

    def _finish(self, m: Machine, entry: _Entry, forced: dict[str, bool]) -> None:
        kinds = {note.kind for note in m.notes}
        if not forced:
            self.covered |= m.covered
        if kinds & {"backward", "step", "zero", "clip", "called", "opaque", "schedule"}:
            trace = Settler(m).trace()
            assumptions = list(m.decisions.assumed.values())
            self.run.paths.append(Path(trace, assumptions, forced, entry.name, dict(m.problems)))
        self.run.problems.extend(
            (reason, node) for reason, node in m.problems.items() if node is not None
        )

    def _execute(self, m: Machine, entry: _Entry) -> None:
        scope = m.scope_of(self.module)
        if entry.code is None:
            m.run(self.module.tree.body, scope)
            return
        quiet = _quiet(self.module)
        m.run(quiet, scope)
        m.notes = [note for note in m.notes if note.kind in {"made", "mode"}]
        m.decisions.worth.clear()
        function = self._function(m, entry, scope)
        if function is None:
            return
        if entry.name == "training_step" and isinstance(function.bound, Net):
            self._training_steps(m, entry, function, scope)
            return
        args = self._arguments(m, function)
        before = len(m.notes)
        calls.invoke(m, entry.code, function, list(args), {}, scope)
        makes = any(
            note.kind == "made" and isinstance(note.data["thing"], Optimizer)
            for note in m.notes[before:]
        )
        if _has_loop(entry.code) and not makes and not m.epochal:
            # One epoch of somebody else's loop over epochs: what it leaves behind meets the next.
            m.serial += 1
            calls.invoke(m, entry.code, function, list(args), {}, scope)

    def _training_steps(
        self, m: Machine, entry: _Entry, function: Function, scope: Scope
    ) -> None:
        """Lightning calls the step once per batch, with the batch's number."""
        assert entry.code is not None
        names = [arg.arg for arg in entry.code.args.args][1:]
        loop = loops._enter(m, entry.code, "loader", None, scope)
        loop.text = "trainer"
        for _ in range(2):
            index, length = 0, m.lengths.length
            while index < length:
                loop.index, loop.length, loop.guard = index, length, None
                m.serial += 1
                m.note("drawn", entry.code, scope, loop=loop, index=index)
                args: list[Value] = [Unknown(f"{id(function.code)}:batch", "batch")]
                if len(names) > 1:
                    args.append(index)
                calls.invoke(m, entry.code, function, args, {}, scope)
                index += 1
                if index == 1 and not loop.moduli:
                    length = loops.PLAIN
            m.note("epoch-end", entry.code, scope, loop=loop, epoch=0, batches=length)
        m.loops.pop()

    def _function(self, m: Machine, entry: _Entry, scope: Scope) -> Function | None:
        code = entry.code
        assert code is not None
        if entry.owner is None:
            found = scope.names.get(code.name)
            if isinstance(found, Function) and found.code is code:
                return found
            return statements.function_of(code, scope, None)
        cls = scope.names.get(entry.owner.name)
        if not isinstance(cls, Class) or cls.code is not entry.owner:
            return None
        cls = self._most_derived(scope, cls, code.name)
        made = calls.blank(m, entry.owner, cls, [], {})
        made.known_as = "self"
        if not isinstance(made, Instance | Net):
            return None
        self._initialise(m, cls, made, scope)
        found = attributes.find_member(made, code.name)
        if not isinstance(found, Function) or found.code is not code:
            return None
        bound = Function(found.code, found.scope, bound=made, owner=found.owner)
        bound.wraps_no_grad = found.wraps_no_grad
        return bound

    def _most_derived(self, scope: Scope, cls: Class, name: str) -> Class:
        """Return a subclass in the file that does not replace the method: it completes the base."""
        for value in scope.names.values():
            if isinstance(value, Class) and value is not cls and cls in value.mro():
                if name not in value.members:
                    return value
        return cls

    def _initialise(self, m: Machine, cls: Class, made: Value, scope: Scope) -> None:
        initial = attributes.find_member(made, "__init__")
        if isinstance(initial, Function):
            bound = Function(initial.code, initial.scope, bound=made, owner=initial.owner)
            before = len(m.notes)
            calls.invoke(m, cls.code, bound, self._arguments(m, bound), {}, scope)
            m.epochal = False
            m.notes[before:] = [n for n in m.notes[before:] if n.kind in {"made", "mode", "called"}]
            m.covered.discard(id(initial.code))

    def _arguments(self, m: Machine, function: Function) -> list[Value]:
        """Return unknown values for the parameters of an entry: a default says nothing."""
        spec = function.code.args
        names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
        if function.bound is not None:
            names = names[1:]
        for arg in spec.kwonlyargs:
            names.append(arg.arg)
        return [Unknown(f"{id(function.code)}:{name}", name) for name in names]


def _quiet(module: Module) -> list[ast.stmt]:
    """Return the statements of a module that only set up: definitions, imports, assignments."""
    found: list[ast.stmt] = []
    for statement in module.tree.body:
        if isinstance(statement, ast.Expr | ast.For | ast.While | ast.With):
            continue
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            continue
        found.append(statement)
    return found


def _has_loop(code: ast.AST | None) -> bool:
    return code is not None and any(
        isinstance(node, ast.For | ast.While | ast.AsyncFor) for node in ast.walk(code)
    )


def _is_autograd(owner: ast.ClassDef | None, code: Definition) -> bool:
    """Say whether a method is one of an `autograd.Function`: there backward means another thing."""
    if owner is None:
        return False
    bases = " ".join(ast.unparse(base) for base in owner.bases)
    return "Function" in bases and code.name in {"forward", "backward", "setup_context"}


__all__ = ["Path", "Run", "Runner", "torch_api"]
