"""The state of one path, and the tables of what executes which syntax."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from instep.check.execute.decisions import Decisions, Undecided
from instep.check.execute.journal import Loop, Note
from instep.check.execute.program import Scope
from instep.check.execute.tensors import Tensor
from instep.check.execute.values import DictValue, Gate, ListValue, Ref, Thing, Unknown, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from instep.check.execute.arguments import Call
    from instep.check.execute.lengths import Lengths
    from instep.check.execute.program import Module, Project
    from instep.check.execute.standins import Turns
    from instep.check.execute.things import Accelerator, Net
    from instep.trace.updates import Written

    Evaluate = Callable[["Machine", Any, Scope], Value]
    Execute = Callable[["Machine", Any, Scope], "int | None"]

BREAK: Final = 1
CONTINUE: Final = 2
RETURN: Final = 3
RAISE: Final = 4
"""What a statement can do besides going on."""
MOST_EXPRESSIONS: Final = 1000
"""Expressions that are being evaluated, over all calls inside calls."""

# Filled by `tables`, once every module is there.
EVALUATE: dict[type[ast.AST], Evaluate] = {}
EXECUTE: dict[type[ast.AST], Execute] = {}
BUILTINS: dict[str, Value] = {}

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
_ACTIONS = frozenset({"step", "zero_grad"})


class ExhaustedError(Exception):
    """The budget of a path is spent."""


class RestartError(Exception):
    """The path must run again: loaders are too short to show every window."""


class Machine:
    """One path through the program."""

    def __init__(
        self,
        project: Project,
        lengths: Lengths,
        forced: Undecided | None = None,
        budget: int = 20_000,
    ) -> None:
        self.project = project
        self.lengths = lengths
        self.decisions = Decisions(forced)
        self.budget = budget
        self.problems: dict[str, tuple[ast.AST, Module]] = {}
        # What has happened.
        self.notes: list[Note] = []
        self.assumed: Thing | None = None  # an object that nobody was seen to make
        self.handed: list[Note] = []  # functions that were given to somebody who may call them
        self.covered: set[ast.AST] = set()  # functions that were executed to their end
        self.tested: set[ast.AST] = set()  # tests that need not be gone through once more
        self.backed: set[int] = set()  # tensors that were backpropagated
        self.summed: set[int] = set()  # tensors that were a part of one that was
        self.managed: str | None = None  # who counts micro-batches instead of the loop
        self.counters: dict[str, set[ast.AST]] = {}  # where unknown ones are asked
        self.single = False  # it makes one update, and is called again only by somebody else
        self.partial = False  # it is a part of somebody else's loop, which draws the batches
        self.epochal = False  # a loop over epochs was seen
        self.tokens = 0  # how often a tokenizer was given new ones
        self.resized: dict[Net, int] = {}  # models that have room for them, since which time
        # Where execution stands.
        self.scopes: dict[Module, Scope] = {}
        self.stack: list[ast.AST] = []
        self.depth = 0
        self.level = 0  # expressions inside expressions, over all calls
        self.returned: Value = None
        self.no_grad = 0
        self.casts: list[bool | None] = []  # the autocast around, and whether it is enabled
        self.accumulating: Accelerator | None = None  # inside its `accumulate`
        self.loops: list[Loop] = []
        self.turns: list[Turns] = []  # the same, and what their variables pick out of lists
        self.things: list[tuple[int, int]] = []  # loops over things that are no data
        self.settings: list[int] = []  # loops over plain values, and how far each is
        self.trainings: set[ast.AST] = set()  # such loops whose every turn trains from the start
        self.serial = 0  # iterations begun, over all loops
        self.epochs: dict[ast.AST, int] = {}
        self.picking: set[ast.AST] = set()  # what is done to some parameters of a loop over them
        self.itemwise: set[ast.AST] = set()  # additions in loops over the items of a batch
        self.sites: dict[ast.AST, int] = {}  # how often what counts by itself was asked
        # What is the same wherever it is met.
        self.idents = 0
        self.derived: dict[tuple[Any, ...], Unknown] = {}
        self.memo: dict[Hashable, Value] = {}
        # The condition that is being tested, and those that were.
        self.gates: list[tuple[int, Written]] = []
        self.seen_gate: tuple[int, Written] | None = None
        self.gate_matters = False  # events hang on it
        self.bound: str | None = None  # it compares a count or an index with an unknown number
        self.ended = False  # it compares two known numbers, one of which may be a count
        self.counting = False  # the branch resets what it counts
        self.hung = False  # it could not be known

    # Executing

    def ev(self, node: ast.AST, scope: Scope) -> Value:
        """Evaluate an expression."""
        # Most are one of two kinds, which are not worth a call of their own.
        if type(node) is ast.Name:
            found = scope.names.get(node.id)
            return found if found is not None else self.lookup(node.id, scope)
        if type(node) is ast.Constant:
            return node.value
        self.level += 1  # not taken back when something is raised: that ends the path
        if self.level > MOST_EXPRESSIONS:
            raise RecursionError
        value = EVALUATE[type(node)](self, node, scope)
        self.level -= 1
        return value

    def run(self, statements: Sequence[ast.stmt], scope: Scope) -> int | None:
        """Execute statements until one leaves the block; return how."""
        for statement in statements:
            self.budget -= 1
            if self.budget < 0:
                raise ExhaustedError
            signal = EXECUTE[type(statement)](self, statement, scope)
            if signal is not None:
                return signal
        return None

    # Values

    def unknown(
        self, node: ast.AST, scope: Scope, name: str = "", drawn: Thing | None = None
    ) -> Unknown:
        """Return the unknown value of an expression."""
        return Unknown(scope.module.key(node), name, drawn)

    def tensor(self, nets: frozenset[Net] | None, node: ast.AST | None) -> Tensor:
        """Return a new tensor that came from these models."""
        self.idents += 1
        tensor = Tensor(self.idents, nets, node)
        if self.no_grad:
            tensor.graph = False
            tensor.nets = frozenset()
        return tensor

    def scope_of(self, module: Module) -> Scope:
        """Return the scope of a module, empty if it has not been executed."""
        scope = self.scopes.get(module)
        if scope is None:
            scope = self.scopes[module] = Scope(module)
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
        # What is only handed around may be an optimizer.
        uses = scope.module.scan.uses.get(name, _ACTIONS if name == "optim" else frozenset())
        if implied is not None and not uses & _ACTIONS:
            return top.names.setdefault(name, Ref(implied))
        made = top.names[name] = Unknown(f"{id(top.module)}:{name}", name)
        return made

    # Events

    def note(self, kind: str, node: ast.AST, scope: Scope, **data: Any) -> Note:
        """Write down an event."""
        return self.write(kind, node, scope.module, data)

    def write(self, kind: str, node: ast.AST, module: Module, data: dict[str, Any]) -> Note:
        """Write down an event whose data are put together already."""
        note = Note(kind, node, module, data)
        self.notes.append(note)
        if kind == "step":
            for loop in self.loops:
                loop.steps += 1
        elif kind == "forward":
            for loop in self.loops:
                loop.forwards += 1
        return note

    def look_up(self, number: Value, module: Module) -> None:
        """Ask the files around a module for what an option is that it counts with."""
        if type(number) is Unknown and not number.usual and number.whole is not None:
            name = (number.known_as or "").rpartition(".")[2]
            number.usual = self.project.usual(module, name) or module.scan.parameter(name)

    def gate(self) -> tuple[int, Written] | None:
        """Return the gate that stands before what happens now: its number, if it is literal."""
        if self.gates:
            return self.gates[-1]
        return next((loop.guard for loop in reversed(self.loops) if loop.guard is not None), None)

    def ask(self, *, matters: bool, counting: bool) -> None:
        """Begin to test a condition: events hang on it; its branch resets what it counts."""
        self.gate_matters, self.counting = matters, counting
        self.seen_gate, self.bound = None, None
        self.hung = self.ended = False

    def answer(self) -> tuple[int, Written] | None:
        """Return the gate in the condition that was tested, if there is one."""
        gate, self.seen_gate = self.seen_gate, None
        self.gate_matters = self.counting = False
        return gate

    def hang(self, every: int) -> bool:
        """Take note that events hang on a count; true if loaders must become longer for it."""
        for loop in self.loops:
            loop.moduli.add(every)
        return self.lengths.need(every)

    def problem(self, reason: str, call: Call) -> None:
        """Write down why a loop cannot be judged."""
        self.problems.setdefault(reason, (call.node, call.scope.module))


def truth(value: Value) -> bool | Undecided:
    """Return whether a value counts as true, or what that hangs on."""
    if not isinstance(value, Thing):
        if isinstance(value, Gate):
            return value.holds
        return value if isinstance(value, Undecided) else bool(value)
    if isinstance(value, Unknown):
        return Undecided(value.key)
    if isinstance(value, Tensor):
        return Undecided(f"tensor:{getattr(value.made_at, 'lineno', 0)}")
    if isinstance(value, (ListValue, DictValue)) and not value.items:
        return False if value.exact else Undecided(f"{type(value).__name__}:{id(value)}")
    return True
