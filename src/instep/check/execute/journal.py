"""Events as they happen, with the values they happened to. `settle` makes the trace of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

FEW = 16
"""Turns of a loop that keep little alive, however large a graph is."""

if TYPE_CHECKING:
    import ast

    from instep.check.execute.program import Module
    from instep.check.execute.values import Thing, Value
    from instep.trace.updates import Written


class Loop:
    """A loop while it runs, and what has been seen in it."""

    def __init__(
        self, node: ast.AST, kind: str, origin: Thing | None, outer: Loop | None, start: int = 0
    ) -> None:
        self.node = node
        self.kind = kind  # loader, range, unknown, while
        self.origin = origin
        self.outer = outer
        self.length: int | None = None
        self.literal = False
        self.few = False  # its turns are so many, and no more, by what is written
        self.written: Written | None = None  # where the number of its iterations is
        self.supposed = False  # its length may be that of a branch, and another one without it
        self.index = 0
        self.nested = False  # another loop over data ran inside
        self.draws = False  # next() was called inside, outside any inner loop
        self.steps = 0
        self.forwards = 0
        self.moduli: set[int] = set()
        # A gate that leaves the iteration was passed.
        self.guard: tuple[int, Written] | None = None
        self.unsure = False  # a gate's counter is not known
        # What it goes through again and again beside the batches.
        self.cycled: tuple[Value, ...] = ()
        self.limited = False  # a count that runs on may end it before its loader does
        self.start = start  # iterations that had begun when it was entered
        self.text = ""
        self.name = ""
        self.patches = False
        self.sliced = False  # no word says so: they are slices of something, perhaps of a data set
        self.again = False  # the loop around it does nothing but repeat it

    def is_batches(self) -> bool:
        """Say whether what it draws are whole batches, not pieces of one."""
        if self.kind == "loader":
            return True
        if self.outer is None:
            return self.kind != "range" or self.steps > 0
        if self.feeder() is not None:
            return False
        return self.steps > 0

    def runs_once(self) -> bool:
        """Say whether the source says that it has one iteration."""
        return self.literal and self.length == 1

    def is_repeated(self) -> bool:
        """Say whether a loop around it, over epochs, may run it again."""
        outer = self.outer
        if outer is None or outer.text == "range(1)":
            return False
        return outer.supposed or not outer.runs_once()

    def comes_again(self) -> bool:
        """Say whether the loop around it goes through the pieces of one batch several times."""
        return self.again and self.is_repeated() and self.feeder() is not self.outer

    def may_be_of_shard(self) -> bool:
        """Say whether its pieces may be mini-batches of one of several data sets, as of a file."""
        feeder = self.feeder()
        return self.sliced and (feeder is None or not (feeder.kind == "loader" or feeder.draws))

    def feeder(self) -> Loop | None:
        """Return the loop around it that draws batches, if there is one."""
        loop = self.outer
        while loop is not None:
            if loop.kind in {"loader", "unknown"} or loop.draws:
                return loop
            loop = loop.outer
        return None


class Note:
    """One event that has happened to values, not yet to ids."""

    __slots__ = ("data", "kind", "module", "node")

    def __init__(self, kind: str, node: ast.AST, module: Module, data: dict[str, Any]) -> None:
        self.kind = kind
        self.node = node
        self.module = module
        self.data = data
