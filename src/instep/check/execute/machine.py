"""The state of one path, and the tables of what executes which syntax."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from instep.check.execute.decisions import Decisions, Undecided
from instep.check.execute.journal import Loop, Note
from instep.check.execute.program import Module, Project, Scope
from instep.check.execute.values import (
    Accelerator,
    DictValue,
    Gate,
    ListValue,
    Net,
    Ref,
    Tensor,
    Thing,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Evaluate = Callable[["Machine", Any, Scope], Value]
    Execute = Callable[["Machine", Any, Scope], "int | None"]

BREAK, CONTINUE, RETURN, RAISE = 1, 2, 3, 4
"""What a statement can do besides going on."""

EVALUATE: dict[type[ast.AST], Evaluate] = {}
EXECUTE: dict[type[ast.AST], Execute] = {}
MOST_DEPTH = 14
MOST_EVERY = 64
"""Windows of more micro-batches than this are not followed to their end."""


class Exhausted(Exception):
    """The budget of a path is spent."""


class Restart(Exception):
    """The path must run again: loaders are too short to show every window."""


class Lengths:
    """How long loaders are: long enough that a gate's last window is neither full nor single."""

    def __init__(self) -> None:
        self.moduli: set[int] = set()
        self.length = 8
        self.shift = 0

    def need(self, every: int) -> bool:
        """Take note of a gate's number; true if loaders must become longer for it."""
        if every in self.moduli or not 2 <= every <= MOST_EVERY:
            return False
        self.moduli.add(every)
        old = self.length
        self.length = self.fit(max(8, 2 * max(self.moduli) + 2))
        return self.length != old

    def fit(self, least: int) -> int:
        """Return the shortest length from `least` on that exposes the last window."""
        length = least
        for _ in range(200):
            if all(length % n > 1 for n in self.moduli if n > 2):
                break
            length += 1
        return length

    def like(self, literal: int) -> int:
        """Return a short length whose windows end as those of a long one would."""
        if literal <= self.length + 4:
            return literal
        for length in range(self.length, self.length + 400):
            if all(length % n == literal % n for n in self.moduli):
                return length
        return self.length


class Machine:
    """One path through the program."""

    def __init__(
        self,
        project: Project,
        lengths: Lengths,
        forced: dict[str, bool] | None = None,
        budget: int = 20_000,
    ) -> None:
        self.project = project
        self.lengths = lengths
        self.decisions = Decisions(forced or {})
        self.budget = budget
        self.notes: list[Note] = []
        self.scopes: dict[int, Scope] = {}
        self.modules: list[Module] = []
        self.loops: list[Loop] = []
        self.gates: list[tuple[int, bool]] = []
        self.returned: Value = None
        self.serial = 0  # iterations begun, over all loops
        self.depth = 0
        self.stack: list[ast.AST] = []
        self.no_grad = 0
        self.managed: str | None = None
        self.accumulating: Accelerator | None = None  # inside its `accumulate`
        self.covered: set[int] = set()
        self.reached: set[int] = set()
        self.backed: set[int] = set()  # tensors that were backpropagated
        self.summed: set[int] = set()  # tensors that were a part of one that was
        self.resets: dict[tuple[int, str], list[int]] = {}  # when names were assigned anew
        self.derived: dict[tuple[Any, ...], Unknown] = {}
        self.sites: dict[int, int] = {}
        self.memo: dict[int, Value] = {}
        self.epochs: dict[int, int] = {}
        self.things: list[tuple[int, int]] = []  # loops over things that are no data
        self.problems: dict[str, ast.AST | None] = {}
        self.idents = 0
        self.seen_gate: tuple[int, bool] | None = None  # in the condition that is being tested
        self.gate_matters = False  # and events hang on it
        self.epochal = False  # a loop over epochs was seen
        self.bound: str | None = None  # it compares a count or an index with an unknown number
        self.counting = False  # and it resets what it counts
        self.hung = False  # that condition could not be known

    # Executing

    def ev(self, node: ast.AST, scope: Scope) -> Value:
        """Evaluate an expression."""
        found = EVALUATE.get(type(node))
        if found is None:
            return self.unknown(node, scope)
        return found(self, node, scope)

    def run(self, statements: Sequence[ast.stmt], scope: Scope) -> int | None:
        """Execute statements until one leaves the block; return how."""
        for statement in statements:
            self.budget -= 1
            if self.budget < 0:
                raise Exhausted
            execute = EXECUTE.get(type(statement))
            if execute is not None:
                signal = execute(self, statement, scope)
                if signal is not None:
                    return signal
        return None

    # Values

    def unknown(
        self, node: ast.AST, scope: Scope, name: str = "", drawn: Thing | None = None
    ) -> Unknown:
        """Return the unknown value of an expression."""
        key = f"{id(scope.module)}:{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}"
        return Unknown(key, name, drawn)

    def tensor(self, nets: frozenset[Net] | None, node: ast.AST | None) -> Tensor:
        """Return a new tensor that came from these models."""
        self.idents += 1
        tensor = Tensor(self.idents, nets)
        tensor.made_at = node
        if self.no_grad:
            tensor.graph = False
            tensor.nets = frozenset()
        return tensor

    def scope_of(self, module: Module) -> Scope:
        """Return the scope of a module, empty if it has not been executed."""
        scope = self.scopes.get(id(module))
        if scope is None:
            scope = self.scopes[id(module)] = Scope(module)
            self.modules.append(module)
        return scope

    def lookup(self, name: str, scope: Scope) -> Value:
        """Return what a name stands for; an undefined one is unknown, but always the same."""
        current: Scope | None = scope
        while current is not None:
            if name in current.names:
                return current.names[name]
            current = current.outer
        builtin = BUILTINS.get(name)
        if builtin is not None:
            return builtin
        top = scope.top()
        implied = IMPLIED.get(name)
        if implied is not None and not scope.module.scan.uses.get(name, _NO_USES) & _ACTIONS:
            return top.names.setdefault(name, Ref(implied))
        made = top.names[name] = Unknown(f"{id(top.module)}:{name}", name)
        return made

    # Events

    def note(self, kind: str, node: ast.AST | None, scope: Scope | None, **data: Any) -> Note:
        """Write down an event."""
        note = Note(kind, node, scope.module if scope is not None else None, data)
        self.notes.append(note)
        if kind == "step":
            for loop in self.loops:
                loop.steps += 1
        elif kind == "forward":
            for loop in self.loops:
                loop.forwards += 1
        return note

    def gate(self) -> tuple[int, bool] | None:
        """Return the gate that stands before what happens now: its number, if it is literal."""
        if self.gates:
            return self.gates[-1]
        return next((loop.guard for loop in reversed(self.loops) if loop.guard is not None), None)

    def problem(self, reason: str, node: ast.AST | None) -> None:
        """Write down why a loop cannot be judged."""
        self.problems.setdefault(reason, node)


BUILTINS: dict[str, Value] = {}
_ACTIONS = frozenset({"step", "zero_grad"})
_NO_USES = _ACTIONS  # what is only handed around may be anything
IMPLIED = {
    "torch": "torch",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "optim": "torch.optim",
    "DataLoader": "torch.utils.data.DataLoader",
    "GradScaler": "torch.amp.GradScaler",
    "tqdm": "tqdm.tqdm",
    "DDP": "torch.nn.parallel.DistributedDataParallel",
}
"""What a snippet means by a name that it does not import."""


def truth(value: Value) -> bool | Undecided:
    """Return whether a value counts as true, or what that hangs on."""
    if isinstance(value, Undecided):
        return value
    if isinstance(value, Gate):
        return value.holds
    if isinstance(value, Unknown):
        return Undecided(value.key)
    if isinstance(value, Tensor):
        return Undecided(f"tensor:{getattr(value.made_at, 'lineno', 0)}")
    if isinstance(value, ListValue):
        if value.items:
            return True
        return False if value.exact else Undecided(f"list:{id(value)}")
    if isinstance(value, DictValue):
        return bool(value.items) or (False if value.exact else Undecided(f"dict:{id(value)}"))
    if isinstance(value, Thing):
        return True
    return bool(value)
