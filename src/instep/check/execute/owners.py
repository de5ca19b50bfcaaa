"""Owners: which optimizers something happens to, through the models whose parameters they hold."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from instep.check.execute.things import Net, Optimizer, Scheduler, overlap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from instep.check.execute.journal import Note


_WITHOUT = frozenset({"backward", "called", "drawn", "epoch-end", "forward", "mode", "update"})
"""Notes in which there is no optimizer: most of them."""


class Owners:
    """The optimizers of one path, and from when to when there is each of them."""

    def __init__(self, notes: Sequence[Note]) -> None:
        self.optimizers: dict[Optimizer, None] = {}
        self.now = 0  # the note that is being settled
        self._born: dict[Optimizer, int] = {}
        self._gone: dict[Optimizer, int] = {}
        for at, note in enumerate(notes):
            if note.kind not in _WITHOUT:
                self._collect(at, note)
        # It is asked for at nearly every note, and changes at a few.
        self._changes = sorted({*self._born.values(), *self._gone.values()})
        self._present: dict[int, list[Optimizer]] = {}

    def _collect(self, at: int, note: Note) -> None:
        """Find every optimizer that the path knows, and from when to when there is it: one that
        nothing happens to any more when another one is made was replaced by it.
        """
        if note.kind == "made" and isinstance(note.data["thing"], Optimizer):
            for before in self._born:
                self._gone.setdefault(before, at)  # unless something still happens to it, see below
            self._born[note.data["thing"]] = at
            return
        for value in note.data.values():
            for inner in value if type(value) is list else (value,):
                kind = type(inner)  # neither of the two has subclasses
                if kind is Optimizer:
                    self.optimizers.setdefault(inner)
                    self._gone.pop(inner, None)
                elif kind is Scheduler and inner.optimizer is not None:
                    self.optimizers.setdefault(inner.optimizer)

    def present(self) -> list[Optimizer]:
        """Return the optimizers that there are now."""
        at = bisect_right(self._changes, self.now)
        if at not in self._present:
            self._present[at] = self._there()
        return self._present[at]

    def _there(self) -> list[Optimizer]:
        return [
            optimizer
            for optimizer in self.optimizers
            if self._born.get(optimizer, 0) <= self.now
            and (optimizer not in self._gone or self.now < self._gone[optimizer])
        ]

    def holds(self, net: Net) -> bool:
        """Say whether an optimizer that was ever there holds parameters of a model."""
        every = (*self.optimizers, *self._born)
        return any(_shares(optimizer, net) for optimizer in every)

    def of(self, nets: frozenset[Net] | None) -> list[Optimizer] | None:
        """Return the optimizers that hold parameters of these models; None if not known."""
        every = self.present()
        if nets is None:
            return every if len(every) <= 1 else None
        sure = [o for o in every if o.nets is not None and overlap(o.nets, nets)]
        if all(optimizer.nets is not None for optimizer in every):
            return sure
        if sure:
            # Another one may hold some of the same parameters, though hardly anybody does that.
            return sure if all(any(_shares(o, net) for o in sure) for net in nets) else None
        return every if len(every) == 1 else None

    def covers(self, optimizers: Iterable[Optimizer] | None, nets: frozenset[Net] | None) -> bool:
        """Say whether clearing some models clears everything that these optimizers hold."""
        if nets is None or optimizers is None:
            return True
        cleared = set().union(*(net.inside() for net in nets))
        return all(
            net in cleared or net.lineage() & nets
            for optimizer in optimizers
            for net in optimizer.nets or ()
        )

    def beside(self, optimizer: Optimizer) -> list[Optimizer]:
        """Return the other optimizers all of whose parameters this one holds too."""
        if not optimizer.nets:
            return []
        others = [o for o in self.present() if o is not optimizer and o.nets]
        return [other for other in others if self.covers([other], optimizer.nets)]


def _shares(optimizer: Optimizer, net: Net) -> bool:
    return optimizer.nets is not None and overlap(optimizer.nets, frozenset({net}))
