"""Events as they happen, with the values they happened to. `settle` makes the trace of them."""

from __future__ import annotations

import ast  # noqa: TC003  # a compiled build evaluates the fields of a dataclass
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.check.execute.program import Module
    from instep.check.execute.values import Thing, Value


@dataclass(eq=False)
class Loop:
    """A loop while it runs, and what has been seen in it."""

    node: ast.AST
    kind: str  # loader, range, unknown, while
    origin: Thing | None
    outer: Loop | None
    length: int | None = None
    literal: bool = False
    index: int = 0
    nested: bool = False  # another loop over data ran inside
    draws: bool = False  # next() was called inside, outside any inner loop
    steps: int = 0
    forwards: int = 0
    moduli: set[int] = field(default_factory=set)
    guard: tuple[int, bool] | None = None  # a gate that leaves the iteration was passed
    unsure: bool = False  # a gate's counter is not known
    cycled: tuple[Value, ...] = ()  # what it goes through again and again beside the batches
    limited: bool = False  # a count that runs on may end it before its loader does
    start: int = 0  # iterations that had begun when it was entered
    text: str = ""
    name: str = ""
    patches: bool = False

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
        return self.outer is not None and self.outer.text != "range(1)"

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
