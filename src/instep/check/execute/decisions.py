"""Conditions that cannot be known: one decision for each on a path, and the paths there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast

    from instep.check.execute.program import Module


class Choice(NamedTuple):
    """The question whether `subject`, which cannot be known, is one of some values."""

    subject: str
    values: frozenset[str | int]


class Undecided:
    """A truth value that hangs on a decision: true if the condition `key` is `positive`."""

    __slots__ = ("choice", "key", "positive")

    def __init__(self, key: str, *, positive: bool = True, choice: Choice | None = None) -> None:
        self.key = key
        self.positive = positive
        self.choice = choice

    def __invert__(self) -> Undecided:
        return Undecided(self.key, positive=not self.positive, choice=self.choice)


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
    """The decisions of one path. `forced` is the one in which it differs from the base path."""

    def __init__(self, forced: Undecided | None = None) -> None:
        self.forced = forced
        self.made: dict[str, bool] = {}
        self.worth: dict[str, Undecided] = {}  # other branches have events as well
        self.looping: set[str] = set()  # of these: asked inside of a loop
        self.assumed: dict[ast.AST, Assumption] = {}  # by the branch
        self._one_of: dict[str, frozenset[str | int]] = {}  # by the subject
        self._none_of: dict[str, frozenset[str | int]] = {}
        if forced is not None:
            self._learn(forced, holds=forced.positive)

    def known(self, condition: Undecided) -> bool | None:
        """Return the truth of a condition that is decided already, or follows from what is."""
        holds = self.made.get(condition.key)
        if holds is None:
            holds = self._follows(condition)
        return None if holds is None else holds == condition.positive

    def decide(
        self, condition: Undecided, *, prefer: bool, worth: bool, looping: bool = False
    ) -> bool:
        """Return the truth of a condition; `prefer` it the first time it is met."""
        key, forced = condition.key, self.forced
        holds = self.made.get(key)
        if holds is None:
            if forced is not None and forced.key == key:
                holds = forced.positive
            else:
                holds = self._follows(condition)
            if holds is None:
                holds = prefer == condition.positive
            self.made[key] = holds
            self._learn(condition, holds=holds)
        if worth:
            self.worth[key] = condition
            if looping:
                self.looping.add(key)
        return holds == condition.positive

    def flips(self) -> list[Undecided]:
        """Return what to force for each path that differs from this one in one decision."""
        return [
            Undecided(key, positive=not self.made[key], choice=condition.choice)
            for key, condition in self.worth.items()
        ]

    def _learn(self, condition: Undecided, *, holds: bool) -> None:
        if condition.choice is None:
            return
        subject, values = condition.choice
        if holds:
            self._one_of[subject] = self._one_of.get(subject, values) & values
        else:
            self._none_of[subject] = self._none_of.get(subject, frozenset()) | values

    def _follows(self, condition: Undecided) -> bool | None:
        """Return what is true of a condition because of others about the same thing.

        What is "adam" is not "sgd", and it is something.
        """
        if condition.choice is None:
            found = self._one_of.get(condition.key)
            return True if found and all(found) else None
        subject, values = condition.choice
        never = self._none_of.get(subject, frozenset())
        only = self._one_of.get(subject)
        if only is not None and only - never:
            left = only - never
            if left <= values or not left & values:
                return left <= values
        is_absent = self.made.get(subject) is False and all(values)
        return False if is_absent or values <= never else None
