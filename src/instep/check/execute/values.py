"""What a name can stand for.

Numbers, strings, booleans, None and tuples stand for themselves. Everything else is one of these.
A thing that nobody has seen being made is `Unknown`, until the way it is used tells its role.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable

    from instep.check.execute.program import Module, Scope

Value = Any
"""A constant, a tuple of values, or one of the classes below."""

COUNT = 3
"""What an unknown number of micro-batches is taken to be: small, and not the default of 1."""


class Thing:
    """Something with an identity, named by what it was first assigned to."""

    __slots__ = ("attrs", "known_as", "node", "module")

    role = "thing"

    def __init__(self, name: str | None = None) -> None:
        self.known_as = name
        self.attrs: dict[str, Value] = {}
        self.node: ast.AST | None = None
        self.module: Module | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.known_as}>"


class Unknown(Thing):
    """A value that cannot be known: `key` says which one, so that it is the same everywhere."""

    __slots__ = ("count", "drawn", "formula", "hint", "inverse", "key", "made")

    role = "unknown"

    def __init__(self, key: str, name: str | None = None, drawn: Thing | None = None) -> None:
        super().__init__(name if name is not None else key)
        self.key = key
        self.made: Thing | None = None  # what its use has shown it to be
        self.count: int | None = None  # the number it is taken for, once it is used as one
        self.inverse: Value = None  # it is 1 / this
        self.formula: tuple[Any, ...] | None = None  # the operation that it is the result of
        self.hint: frozenset[Net] | None = None  # the models that it was made of
        self.drawn = drawn  # the loader whose batch it is, or is made of

    def number(self) -> int:
        """Take it for a number, the same from now on."""
        if self.count is None:
            self.count = COUNT
        return self.count


class Optimizer(Thing):
    """An optimizer: `nets` are the models whose parameters it holds, None if not known."""

    __slots__ = ("accelerator", "kind", "nets", "torch")
    role = "optimizer"

    def __init__(
        self, name: str | None, nets: frozenset[Net] | None = None, kind: str | None = None
    ) -> None:
        super().__init__(name)
        self.nets = nets
        self.kind = kind
        self.torch = False
        self.accelerator: Accelerator | None = None


class Scheduler(Thing):
    """A learning-rate scheduler, and whose rate it sets."""

    __slots__ = ("accelerator", "kind", "optimizer")
    role = "scheduler"

    def __init__(
        self, name: str | None, optimizer: Optimizer | None = None, kind: str | None = None
    ) -> None:
        super().__init__(name)
        self.optimizer = optimizer
        self.kind = kind
        self.accelerator: Accelerator | None = None


class Scaler(Thing):
    """A gradient scaler; `enabled` is None where it is not known."""

    __slots__ = ("enabled",)
    role = "scaler"

    def __init__(self, name: str | None, enabled: bool | None = None) -> None:
        super().__init__(name)
        self.enabled = enabled


class Net(Thing):
    """A model, a part of one, or a lone parameter."""

    __slots__ = (
        "batchnorm", "cls", "distributed", "frozen", "kind", "part_of", "parts", "sync",
        "trainable", "training", "wholes", "written",
    )  # fmt: skip
    role = "model"

    def __init__(
        self, name: str | None, kind: str | None = None, part_of: Net | None = None
    ) -> None:
        super().__init__(name)
        self.kind = kind
        self.part_of: Net | None = None
        self.parts: list[Net] = []
        self.wholes: list[Net] = []
        if part_of is not None:
            self.join(part_of)
        self.cls: Class | None = None
        self.batchnorm: bool | None = None
        self.distributed: str | None = None
        self.frozen: bool = False
        self.sync: bool | None = True
        self.training: bool | None = None
        self.trainable: bool | None = None  # it has parameters of its own
        self.written = False  # its constructor is in the source

    def join(self, whole: Net) -> None:
        """Become a part of another model, perhaps of several."""
        if whole is self or whole in self.inside():
            return
        if self.part_of is None:
            self.part_of = whole
        if self not in whole.parts:
            whole.parts.append(self)
            self.wholes.append(whole)

    def lineage(self) -> set[Net]:
        """Return itself and everything that it is a part of."""
        found: set[Net] = set()
        todo: list[Net] = [self]
        while todo:
            net = todo.pop()
            if net not in found:
                found.add(net)
                todo.extend(net.wholes)
        return found

    def spread_over(self) -> str | None:
        """Return how it, or what it is a part of, is distributed over ranks."""
        return next((net.distributed for net in self.lineage() if net.distributed), None)

    def inside(self) -> set[Net]:
        """Return itself and its known parts."""
        found: set[Net] = set()
        todo = [self]
        while todo:
            net = todo.pop()
            if net not in found:
                found.add(net)
                todo.extend(net.parts)
        return found


def overlap(left: frozenset[Net], right: frozenset[Net]) -> bool:
    """Say whether two sets of models share parameters: one is the other, or a part of it."""
    for one in left:
        above, below = one.lineage(), one.inside()
        for other in right:
            if other in above or other in below or one in other.inside():
                return True
    return False


class Parameters(Thing):
    """The parameters of some models, as `model.parameters()` gives them."""

    __slots__ = ("complete", "named", "nets")
    role = "parameters"

    def __init__(
        self, nets: frozenset[Net] | None, *, named: bool = False, complete: bool = True
    ) -> None:
        super().__init__()
        self.nets = nets
        self.named = named
        self.complete = complete


class Param(Thing):
    """Every one of some parameters at once: the variable of a loop over them."""

    __slots__ = ("complete", "nets", "optimizer")
    role = "parameter"

    def __init__(
        self,
        nets: frozenset[Net] | None,
        *,
        complete: bool = True,
        optimizer: Optimizer | None = None,
    ) -> None:
        super().__init__()
        self.nets = nets
        self.complete = complete
        self.optimizer = optimizer


class Grad(Thing):
    """The gradients of those parameters."""

    __slots__ = ("param",)
    role = "gradient"

    def __init__(self, param: Param) -> None:
        super().__init__()
        self.param = param


class Loader(Thing):
    """Where batches come from."""

    __slots__ = ("batch", "drop_last", "length")
    role = "loader"

    def __init__(self, name: str | None, length: int | None = None) -> None:
        super().__init__(name)
        self.length = length  # batches, where the source says
        self.batch: int | None = None  # items in a batch, where the source says
        self.drop_last: bool | None = None


class Iterator(Thing):
    """What `iter` and the wrappers of iterables give: something to draw from."""

    __slots__ = ("infinite", "limit", "of", "shape", "start")
    role = "iterator"

    def __init__(
        self,
        of: Value,
        shape: str = "plain",
        *,
        start: Value = 0,
        limit: int | None = None,
        infinite: bool = False,
    ) -> None:
        super().__init__()
        self.of = of
        self.shape = shape  # plain, enumerate, zip
        self.start = start
        self.limit = limit
        self.infinite = infinite


class Range(Thing):
    """A range whose bounds may be unknown."""

    __slots__ = ("start", "step", "stop")
    role = "range"

    def __init__(self, start: Value, stop: Value, step: Value) -> None:
        super().__init__()
        self.start, self.stop, self.step = start, stop, step


class Criterion(Thing):
    """A loss function and what is known about it."""

    __slots__ = ("coupled", "kind", "ragged", "reduction")
    role = "loss"

    def __init__(
        self,
        name: str | None,
        kind: str | None = None,
        reduction: str | None = None,
        *,
        ragged: bool | None = None,
        coupled: bool | None = None,
    ) -> None:
        super().__init__(name)
        self.kind = kind
        self.reduction = reduction
        self.ragged = ragged
        self.coupled = coupled


class Ref(Thing):
    """Something outside the project, by its full name: "torch.optim.Adam"."""

    __slots__ = ("path",)
    role = "reference"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Function(Thing):
    """A function, method or lambda of the project."""

    __slots__ = ("bound", "code", "owner", "scope", "wraps_no_grad")
    role = "function"

    def __init__(
        self,
        code: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        scope: Scope,
        *,
        bound: Value = None,
        owner: Class | None = None,
    ) -> None:
        super().__init__(getattr(code, "name", "<lambda>"))
        self.code = code
        self.scope = scope
        self.bound = bound
        self.owner = owner
        self.wraps_no_grad = False


class Method(Thing):
    """A method of something that is not the project's: `optimizer.step`."""

    __slots__ = ("name", "receiver")
    role = "method"

    def __init__(self, receiver: Value, name: str) -> None:
        super().__init__(name)
        self.receiver = receiver
        self.name = name


class Native(Thing):
    """A function that the executor supplies."""

    __slots__ = ("call",)
    role = "native"

    def __init__(self, call: Callable[..., Value]) -> None:
        super().__init__()
        self.call = call


class Class(Thing):
    """A class of the project."""

    __slots__ = ("bases", "code", "members", "scope", "settings")
    role = "class"

    def __init__(self, code: ast.ClassDef, scope: Scope, bases: list[Value]) -> None:
        super().__init__(code.name)
        self.code = code
        self.scope = scope
        self.bases = bases
        self.members: dict[str, Value] = {}
        self.settings = False  # a dataclass or the like: its values are defaults, not facts

    def mro(self) -> list[Class]:
        """Return it and its known bases, nearest first."""
        found: list[Class] = [self]
        for base in self.bases:
            if isinstance(base, Class) and len(found) < 30:
                found.extend(cls for cls in base.mro() if cls not in found)
        return found

    def outside(self) -> list[str]:
        """Return the full names of the bases that are not the project's."""
        return [
            base.path if isinstance(base, Ref) else str(base.known_as)
            for cls in self.mro()
            for base in cls.bases
            if not isinstance(base, Class) and isinstance(base, Thing)
        ]


class Instance(Thing):
    """An object of a class of the project."""

    __slots__ = ("cls",)
    role = "instance"

    def __init__(self, cls: Class, name: str | None = None) -> None:
        super().__init__(name)
        self.cls = cls


class Super(Thing):
    """What `super()` gives."""

    __slots__ = ("after", "of")
    role = "super"

    def __init__(self, of: Value, after: Class) -> None:
        super().__init__()
        self.of = of
        self.after = after


class ListValue(Thing):
    """A list or set; `exact` if these are all of its elements."""

    __slots__ = ("born", "exact", "items")
    role = "list"

    def __init__(self, items: list[Value], *, exact: bool = True, born: int = 0) -> None:
        super().__init__()
        self.items = items
        self.exact = exact
        self.born = born  # the iteration in which it was made


class DictValue(Thing):
    """A dict with constant keys; `exact` if these are all of its entries."""

    __slots__ = ("exact", "items")
    role = "dict"

    def __init__(self, items: dict[Value, Value], *, exact: bool = True) -> None:
        super().__init__()
        self.items = items
        self.exact = exact


class Context(Thing):
    """A context manager: what entering and leaving it does."""

    __slots__ = ("enter", "leave")
    role = "context"

    def __init__(
        self,
        enter: Callable[[], Value] | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.enter = enter
        self.leave = leave


class Accelerator(Thing):
    """Accelerate or Fabric: an object through which backward, clip and step go."""

    __slots__ = ("kind", "micro", "steps", "syncs")
    role = "accelerator"

    def __init__(self, name: str | None, kind: str, steps: Value = 1) -> None:
        super().__init__(name)
        self.kind = kind
        self.steps = steps  # micro-batches that it accumulates over
        self.micro = 0
        self.syncs = True  # the next step is a real one


class Gate:
    """A truth value that hangs on a count: `(i + 1) % 4 == 0`."""

    __slots__ = ("every", "holds", "literal")

    def __init__(self, holds: bool, every: int, literal: bool) -> None:
        self.holds = holds
        self.every = every
        self.literal = literal

    def __repr__(self) -> str:
        return f"<Gate {self.holds} every {self.every}>"


class Mod(int):
    """The rest of a division of a counter; it remembers what was divided by."""

    every: int
    literal: bool
    sure: bool  # False: where the counter began is not known


class Tick(int):
    """A number that is counted up or measured from another: `count`, `i - last`."""


class Tensor(Thing):
    """A tensor that may have come from models, perhaps a loss.

    `parts` are its multipliers: numbers, or (value, power) where the value is not a plain number;
    None if they are not known.
    """

    __slots__ = (
        "chain", "coupled", "graph", "ident", "kind", "made_at", "nets", "parts", "ragged", "reduction",
        "scaled", "sums", "weights",
    )  # fmt: skip
    role = "tensor"

    def __init__(self, ident: int, nets: frozenset[Net] | None) -> None:
        super().__init__()
        self.ident = ident
        self.nets = nets
        self.graph = True
        self.parts: tuple[Any, ...] | None = ()
        self.weights = False  # a factor that is no division was left out of `parts`
        self.reduction: str | None = None
        self.ragged: bool | None = None
        self.coupled: bool | None = None
        self.kind: str | None = None
        self.scaled: Scaler | None = None
        self.chain: frozenset[int] = frozenset()  # the tensors it is, but for a factor
        self.sums: frozenset[int] = frozenset()  # the tensors that it is a sum of
        self.made_at: ast.AST | None = None
