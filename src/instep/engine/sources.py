"""Where the pieces of a captured window come from, and how they reach the memory a graph reads.

Rows of a batch differ in nothing but their number: the batch is copied once per window, and each
replay takes the next rows by itself. Any other piece is made, and copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from instep.splits.cut import Cutter
from instep.splits.plan import Piece, Rows
from instep.splits.tree import leaves, objects, rebuild, renewed, tensors

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from torch import Tensor

    from instep.splits.plan import Plan

LARGEST = 2**26
"""Bytes of a batch that is held twice, so that nothing has to be done for its pieces."""


class Inputs(Protocol):
    """Memory that a graph reads its piece from."""

    def begin(self, batch: Any) -> None:
        """Start a window."""

    def put(self, given: Any, place: int) -> None:
        """Make the next piece ready for one of the micro-steps that run side by side."""

    def take(self, place: int) -> Any:
        """Return the piece of one of them; what this does is recorded."""

    def advance(self) -> None:
        """Go on to the next pieces; what this does is recorded."""


class Source(Protocol):
    """Pieces, each known by something cheaper than itself."""

    batch: Any

    def __iter__(self) -> Iterator[Any]:
        """Yield what stands for each piece."""

    def key(self, given: Any) -> Hashable | None:
        """Return what must be the same for a recording to fit; None if it cannot be recorded."""

    def items(self, given: Any) -> int | None:
        """Return what a bare mean is a mean of."""

    def handed(self, given: Any) -> Any:
        """Return what `Inputs.put` is given."""

    def piece(self, given: Any) -> Piece:
        """Return the piece itself."""

    def inputs(self, given: Any, width: int) -> Inputs:
        """Return memory for a recording of that many micro-steps side by side."""


def source_of(plan: Plan, function: Hashable) -> Source:
    """Return the pieces of a plan, to be used by this function."""
    if isinstance(plan, Rows) and isinstance(plan.cut, Cutter) and plan.cut.is_plain:
        batch = plan.cut.batch
        found = [leaf for _, leaf in leaves(batch)]
        is_simple = all(
            isinstance(leaf, torch.Tensor)
            and leaf.dim()
            and leaf.is_cuda
            and leaf.is_contiguous()
            and not leaf.requires_grad
            and leaf.shape[0] == found[0].shape[0]  # type: ignore[union-attr]
            for leaf in found
        )
        if found and is_simple and next(objects(batch), None) is None:
            size = sum(tensor.nbytes for tensor in tensors(batch))
            if size <= LARGEST:
                return RowsOf(plan, batch, function)
    return Pieces(plan, function)


class Pieces:
    """The pieces of any plan, made one by one."""

    batch = None

    def __init__(self, plan: Plan, function: Hashable) -> None:
        self._plan = plan
        self._function = function

    def __iter__(self) -> Iterator[Any]:
        return iter(self._plan)

    def key(self, given: Piece) -> Hashable | None:
        """Return the function, the shapes and what the piece is surrounded by."""
        if given.likeness is None:
            return None
        found = []
        for tensor in tensors(given.value):
            if not tensor.is_cuda or tensor.requires_grad:
                return None
            found.append((tensor.shape, tensor.stride(), tensor.dtype, tensor.device))
        others: list[Hashable] = []
        rebuild(
            given.value,
            lambda v: others.append(repr(v)) if not isinstance(v, torch.Tensor) else None,
        )
        key = (self._function, given.likeness, tuple(found), tuple(others), given.items)
        return key if found else None

    def items(self, given: Piece) -> int | None:
        """Return what the plan says."""
        return given.items

    def handed(self, given: Piece) -> Any:
        """Return what is copied."""
        return given.value

    def piece(self, given: Piece) -> Piece:
        """Return itself."""
        return given

    def inputs(self, given: Piece, width: int) -> Inputs:
        """Return memory of the same structure."""
        return Copied(given.value, width)


class RowsOf:
    """Rows of a batch of plain tensors, each known by its slice."""

    def __init__(self, plan: Rows, batch: Any, function: Hashable) -> None:
        self.batch = batch
        self._plan = plan
        samples = next(tensors(batch)).shape[0]
        # Room for the next power of two, so that batches of other sizes find their recording.
        self._room = 1 << max(samples - 1, 0).bit_length()
        shapes = tuple((t.shape[1:], t.dtype, t.device) for t in tensors(batch))
        structure = repr(renewed(batch, lambda number, _: number))
        self._start = (function, shapes, structure, self._room)
        self._keys: dict[int, Hashable] = {}

    def __iter__(self) -> Iterator[slice]:
        return iter(self._plan.slices)

    def key(self, given: slice) -> Hashable:
        """Return the function, the shapes and the number of rows."""
        rows = given.stop - given.start
        key = self._keys.get(rows)
        if key is None:
            key = self._keys[rows] = (rows, *self._start)
        return key

    def items(self, given: slice) -> int:
        """Return the number of rows."""
        rows: int = given.stop - given.start
        return rows

    def handed(self, given: slice) -> int:
        """Return the first row."""
        first: int = given.start
        return first

    def piece(self, given: slice) -> Piece:
        """Cut it."""
        return Piece(self._plan.cut(given), self.items(given))

    def inputs(self, given: slice, width: int) -> Inputs:
        """Return room for the batch."""
        return Taken(self.batch, self._room, self.items(given), width)


class Copied:
    """Each piece is copied to where the graph expects it."""

    def __init__(self, value: Any, width: int = 1) -> None:
        self._held: list[list[Tensor]] = []
        self._values = []
        for _ in range(width):
            self._held.append([])
            self._values.append(renewed(value, self._hold))

    def _hold(self, _: int, tensor: Tensor) -> Tensor:
        held = tensor.clone(memory_format=torch.preserve_format)
        self._held[-1].append(held)
        return held

    def begin(self, batch: Any) -> None:
        """Do nothing: pieces come one by one."""

    def put(self, given: Any, place: int) -> None:
        """Copy a piece of the same structure."""
        torch._foreach_copy_(self._held[place], list(tensors(given)))

    def take(self, place: int) -> Any:
        """Return the memory that pieces are copied to."""
        return self._values[place]

    def advance(self) -> None:
        """Do nothing."""


class Taken:
    """A batch, and the rows of it that are next."""

    def __init__(self, batch: Any, room: int, rows: int, width: int = 1) -> None:
        self._held = [tensor.new_zeros((room, *tensor.shape[1:])) for tensor in tensors(batch)]
        self._structure = renewed(batch, lambda number, _: self._held[number])
        self._rows = rows
        self._all = rows * width
        self._index = torch.arange(self._all, device=self._held[0].device)
        self._at = 0

    def begin(self, batch: Any) -> None:
        """Copy a batch of the same structure."""
        found = list(tensors(batch))
        torch._foreach_copy_([h[: len(t)] for h, t in zip(self._held, found, strict=True)], found)

    def put(self, given: int, place: int) -> None:
        """Be at this row; the last replay has brought us there unless another piece came first.

        Pieces that run side by side lie one behind the other: the first says where all of them are.
        """
        if place:
            return
        if given != self._at:
            torch.arange(given, given + self._all, out=self._index)
        self._at = given + self._all

    def take(self, place: int) -> Any:
        """Return the rows, in the batch's own structure."""
        index = self._index[place * self._rows : (place + 1) * self._rows]
        return renewed(self._structure, lambda _, held: held.index_select(0, index))

    def advance(self) -> None:
        """Go on to the rows behind."""
        self._index.add_(self._all)
