"""Weight gradients of several recorded micro-steps in one product.

A product that adds to an fp32 gradient reads and writes all of it, however few rows it sums over;
with few rows that is most of its time (`make bench-gpu`, products). So recorded micro-steps put
their rows side by side, and the last of a few multiplies them all.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from instep.fast.operators import add_product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

ENOUGH = 2048
"""Rows from which on a product is limited by its arithmetic, not by the gradient's memory."""
MOST = 8
"""Micro-steps that wait for each other at most."""
ROOM = 1.5
"""How much the rows that wait may take, in narrow copies of the weights that they are for."""

UNEQUAL = "its micro-steps do not use the same layers in the same order."


class Call(NamedTuple):
    """One use of a linear layer in a micro-step: rows that come, and the shape of its weight."""

    rows: int
    height: int
    width: int

    @property
    def weight(self) -> int:
        """The elements of the weight."""
        return self.height * self.width

    def pays(self, steps: int) -> bool:
        """Whether copying rows aside moves no more memory than it saves."""
        copied = 4 * self.rows * (self.height + self.width)
        saved = 8 * self.weight * (1 - 1 / steps)
        return self.rows * steps <= ENOUGH and copied <= saved

    def room(self, steps: int) -> int:
        """Elements that its waiting rows take."""
        return steps * self.rows * (self.height + self.width)


class Survey:
    """Takes nothing, and notes what could be taken."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def take(self, number: int, rows: Tensor, columns: Tensor) -> bool:  # noqa: ARG002 -- one interface
        """Note a call."""
        self.calls.append(Call(rows.shape[0], rows.shape[1], columns.shape[1]))
        return False


def steps_for(calls: Sequence[Call], pieces: int) -> int:
    """Return how many micro-steps are worth one product; 1 for none.

    >>> layer = Call(rows=512, height=8192, width=2048)
    >>> steps_for([layer], pieces=8), steps_for([layer], pieces=2)
    (4, 2)
    >>> steps_for([Call(4096, 8192, 2048)], pieces=8), steps_for([Call(512, 64, 64)], pieces=8)
    (1, 1)
    """
    if not calls:
        return 1
    shares: Counter[int] = Counter()
    for call in calls:
        shares[call.rows] += call.weight
    (usual, _), *_ = shares.most_common(1)
    steps = min(MOST, pieces, max(ENOUGH // max(usual, 1), 1))
    while steps > 1:
        chosen = [call for call in calls if call.pays(steps)]
        if chosen and sum(c.room(steps) for c in chosen) <= ROOM * sum(c.weight for c in chosen):
            return steps
        steps //= 2
    return 1


class _Entry(NamedTuple):
    number: int
    call: Call
    rows: Tensor
    columns: Tensor

    def multiply(self, steps: int) -> None:
        """Add the product of what the first steps have left here."""
        end = steps * self.call.rows
        add_product(self.number, self.rows[:end], self.columns[:end])


class Stash:
    """The rows of a few micro-steps, side by side for every use of a layer."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._entries: list[_Entry] = []
        self._step = self._next = 0
        self._is_laid_out = False

    def begin(self, step: int) -> None:
        """Take the rows of this micro-step from now on."""
        self._step, self._next = step, 0

    def end(self) -> None:
        """Raise if the micro-step has left fewer rows than the first one."""
        self._is_laid_out = True
        if self._next != len(self._entries):
            raise RuntimeError(UNEQUAL)

    def take(self, number: int, rows: Tensor, columns: Tensor) -> bool:
        """Keep the rows of one call, or multiply them with all before; False if it is not worth it.

        The first micro-step that is recorded makes the room. The others use the same layers in the
        same order, or they could not be replayed either.
        """
        call = Call(rows.shape[0], rows.shape[1], columns.shape[1])
        if not call.pays(self.steps):
            return False
        if not self._is_laid_out:
            count = call.rows * self.steps
            room = rows.new_empty(count, call.height), columns.new_empty(count, call.width)
            self._entries.append(_Entry(number, call, *room))
        entry = self._entries[self._next] if self._next < len(self._entries) else None
        if entry is None or (entry.number, entry.call) != (number, call):
            raise RuntimeError(UNEQUAL)
        self._next += 1
        part = slice(self._step * call.rows, (self._step + 1) * call.rows)
        entry.rows[part].copy_(rows)
        entry.columns[part].copy_(columns)
        if self._step == self.steps - 1:
            entry.multiply(self.steps)
        return True

    def flush(self, steps: int) -> None:
        """Multiply what the first few micro-steps have left, when no further one comes."""
        for entry in self._entries:
            entry.multiply(steps)
