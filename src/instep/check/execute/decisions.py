"""Conditions that cannot be known: one decision for each on a path, and the paths there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

    from instep.check.execute.program import Module


class Undecided:
    """A truth value that hangs on a decision: true if the condition `key` is `positive`."""

    __slots__ = ("key", "positive")

    def __init__(self, key: str, *, positive: bool = True) -> None:
        self.key = key
        self.positive = positive

    def __invert__(self) -> Undecided:
        return Undecided(self.key, positive=not self.positive)


class Assumption:
    """A branch that was taken because of a decision, with the lines it covers."""

    def __init__(
        self, text: str, *, holds: bool, module: Module, first: int, last: int, node: ast.AST
    ) -> None:
        self.text = text
        self.holds = holds
        self.module = module
        self.first = first
        self.last = last
        self.node = node


class Decisions:
    """The decisions of one path. `forced` are those in which it differs from the base path."""

    def __init__(self, forced: dict[str, bool] | None = None) -> None:
        self.forced = {} if forced is None else forced
        self.made: dict[str, bool] = {}
        self.worth: dict[str, None] = {}  # other branches have events as well
        self.assumed: dict[ast.AST, Assumption] = {}  # by the branch

    def known(self, condition: Undecided) -> bool | None:
        """Return the truth of a condition that is decided already."""
        holds = self.made.get(condition.key)
        return None if holds is None else holds == condition.positive

    def decide(self, condition: Undecided, *, prefer: bool, worth: bool) -> bool:
        """Return the truth of a condition; `prefer` it the first time it is met."""
        key = condition.key
        holds = self.made.get(key)
        if holds is None:
            holds = self.forced.get(key, prefer == condition.positive)
            self.made[key] = holds
        if worth:
            self.worth[key] = None
        return holds == condition.positive

    def flips(self) -> list[dict[str, bool]]:
        """Return what to force for each path that differs from this one in one decision."""
        return [{**self.forced, key: not self.made[key]} for key in self.worth]
