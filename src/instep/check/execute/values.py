"""What a name can stand for.

Numbers, strings, booleans, None and tuples stand for themselves. Everything else is a `Thing`: one
of those here, something with a role in training (`things`), a tensor (`tensors`), or something that
the project defines (`definitions`). What nobody has seen being made is `Unknown`, until the way it
is used tells its role.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from instep.check.execute.lengths import MOST_EVERY

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable

    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module
    from instep.check.execute.things import Net
    from instep.trace.updates import Written

Value = Any
"""A constant, a tuple of values, or a `Thing`."""

COUNT = 3
"""What an unknown number of micro-batches is taken to be: small, and not the default of 1."""

# Attributes of things and names of values, written so that no source can write them.
UNEVEN = "(uneven)"
"""Pieces of which the last one is shorter."""
LENGTH = "len()"
"""The length that was asked for."""
PREPARED = "(prepared by)"
"""The accelerator that something was handed to before its role was known."""
CONFIGURED = "(configured optimizers)"
"""What a LightningModule's `configure_optimizers` returned."""
MODELESS = "(same in train and eval mode)"
"""A model whose arguments take out what train mode switches on."""
ARRAY = "(array of numpy)"
"""What only takes the numbers of tensors."""
SUM = "sum()"
"""The name of a count that the data decide: how many items a mask leaves."""


LONGEST: Final = 240
"""Characters of a name or a key: in a loop, one that is made of another grows at each pass."""


def name_of(text: str) -> str:
    """Return a name, by its end if it is too long: what something is stands there."""
    return text if len(text) <= LONGEST else f"…{text[1 - LONGEST :]}"


def key_of(text: str) -> str:
    """Return a key that is short, and as different from others as the whole text."""
    if len(text) <= LONGEST:
        return text
    mark = f"#{hash(text):x}…"
    return mark + text[len(mark) - LONGEST :]


class Thing:
    """Something with an identity, named by what it was first assigned to.

    Those that come by the thousand set its two fields themselves: calling up takes as long as all
    the rest of making one.
    """

    node: ast.AST | None = None  # where it was made, if that was seen
    module: Module | None = None

    def __init__(self, name: str | None = None) -> None:
        self.known_as = name if name is None or len(name) <= LONGEST else name_of(name)
        self.attrs: dict[str, Value] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.known_as}>"


class Unknown(Thing):
    """A value that cannot be known: `key` says which one, so that it is the same everywhere."""

    made: Thing | None = None  # what its use has shown it to be
    count: int | None = None  # the number it is taken for, once it is used as one
    usual = 0  # what it is unless somebody asks for another; 0: the source does not say
    inverse: Value = None  # it is 1 / this
    formula: tuple[Any, ...] | None = None  # the operation that it is the result of
    hint: frozenset[Net] | None = None  # the models that it was made of
    whole: Unknown | None = None  # what it is an attribute of
    given_to: Net | None = None  # the model that it was made an attribute of
    stem = ""  # the name of the module of the project that it is

    def __init__(self, key: str, name: str | None = None, drawn: Thing | None = None) -> None:
        if len(key) > LONGEST:
            key = key_of(key)
        if name is not None and len(name) > LONGEST:
            name = name_of(name)
        self.known_as = name if name is not None else key
        self.attrs = {}
        self.key = key
        self.drawn = drawn  # the loader whose batch it is, or is made of

    def number(self) -> int:
        """Take it for a number, the same from now on."""
        if self.count is None:
            self.count = self.usual if 1 < self.usual <= MOST_EVERY else COUNT
        return self.count


def written(value: Value) -> Written:
    """Say where a number is written: in the source, as the default of an option, or nowhere."""
    if not isinstance(value, Unknown):
        return "literal"
    if value.usual > 1:
        # It may have been taken for another number before it was looked up.
        return "default" if value.count in {None, value.usual} else "nowhere"
    return "one" if value.usual else "nowhere"


def unify(value: Value) -> Value:
    """Return what an unknown value turned out to be, or the value itself."""
    return value.made if type(value) is Unknown and value.made is not None else value


class Ref(Thing):
    """Something outside the project, by its full name: "torch.optim.Adam"."""

    def __init__(self, path: str) -> None:
        self.known_as = self.path = path if len(path) <= LONGEST else name_of(path)
        self.attrs = {}
        self._members: dict[str, Ref] = {}

    def member(self, name: str) -> Ref:
        """Return what it has under a name: always the same, since it is nothing but a name."""
        found = self._members.get(name)
        if found is None:
            found = self._members[name] = Ref(f"{self.path}.{name}")
        return found


TENSOR = Ref("torch.Tensor")
"""The type of a tensor."""


class Method(Thing):
    """A method of something that is not the project's: `optimizer.step`."""

    def __init__(self, receiver: Value, name: str) -> None:
        self.known_as = self.name = name
        self.attrs = {}
        self.receiver = receiver


class Native(Thing):
    """A function that the executor supplies."""

    def __init__(self, call: Callable[[Machine, Call], Value]) -> None:
        super().__init__()
        self.call = call


class Context(Thing):
    """A context manager: what entering and leaving it does."""

    def __init__(
        self,
        enter: Callable[[], Value] | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.enter = enter
        self.leave = leave


class Range(Thing):
    """A range whose bounds may be unknown."""

    def __init__(self, start: Value, stop: Value, step: Value) -> None:
        super().__init__()
        self.start, self.stop, self.step = start, stop, step


class Iterator(Thing):
    """What `iter` and the wrappers of iterables give: something to draw from."""

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


class ListValue(Thing):
    """A list or set; `exact` if these are all of its elements."""

    picked: str | None = None  # the key, not known, by which one of them was taken

    def __init__(self, items: list[Value], *, exact: bool = True, born: int = 0) -> None:
        super().__init__()
        self.items = items
        self.exact = exact
        self.born = born  # the iteration in which it was made
        self.emptied: set[object] = set()  # the loops in which it was, or made place for another


class DictValue(Thing):
    """A dict with constant keys; `exact` if these are all of its entries."""

    picked: str | None = None  # the key, not known, by which one of them was taken

    def __init__(self, items: dict[Value, Value], *, exact: bool = True) -> None:
        super().__init__()
        self.items = items
        self.exact = exact


class Gate:
    """A truth value that hangs on a count: `(i + 1) % 4 == 0`."""

    __slots__ = ("every", "holds", "written")

    def __init__(self, every: int, *, written: Written, holds: bool) -> None:
        self.every = every
        self.written = written
        self.holds = holds

    def __repr__(self) -> str:
        return f"<Gate {self.holds} every {self.every}>"

    def turned(self, *, holds: bool) -> Gate:
        """Return what hangs on the same count, and now is this."""
        return Gate(self.every, written=self.written, holds=holds)
