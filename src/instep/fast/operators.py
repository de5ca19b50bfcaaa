"""What fused layers add to slots, and the operators that a compiler sees of it.

The gradient itself is no argument of anything: all of them are views of one buffer, and a compiler
that is told they change would copy the whole of it. Nothing but the window's close reads what is in
a slot, so no compiler has to know of it.
"""

from __future__ import annotations

# ruff: noqa: FBT001, FBT003, PLR0917 -- operators are called by position
import contextlib
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import Tensor

from instep.fast.slots import is_added, slot_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from instep.fast.turns import Turns

    Asked = TypeVar("Asked")


class Keeper(Protocol):
    """Something that takes the rows of a weight's gradient instead of having them multiplied."""

    def take(self, number: int, rows: Tensor, columns: Tensor) -> bool:
        """Take them, or not."""


_keepers: list[Keeper] = []
_turns: list[Turns] = []
_firsts: list[Firsts] = []


@contextlib.contextmanager
def _asked(several: list[Asked], one: Asked) -> Iterator[None]:
    """Let this one be asked: the last of its kind is."""
    several.append(one)
    try:
        yield
    finally:
        several.pop()


def keeping(keeper: Keeper) -> contextlib.AbstractContextManager[None]:
    """Offer the rows of every linear layer's backward to a keeper."""
    return _asked(_keepers, keeper)


def taking(turns: Turns) -> contextlib.AbstractContextManager[None]:
    """Let whoever adds to a slot take turns with the other branches of a recording."""
    return _asked(_turns, turns)


def noting(firsts: Firsts) -> contextlib.AbstractContextManager[None]:
    """Note what is added to slots, and by what first."""
    return _asked(_firsts, firsts)


def _turn(number: int) -> contextlib.AbstractContextManager[None]:
    """Wait for one's turn at a slot, where branches take turns."""
    return _turns[-1].taken(number) if _turns else contextlib.nullcontext()


class Firsts:
    """Notes which slots are added to; lets first products be written instead, if asked for.

    A gradient that is written needs no zeros before, and the product does not read it. `without`
    are slots that something else has added to before.
    """

    def __init__(self, *, writes: bool = False, without: Collection[int] = ()) -> None:
        self.touched: set[int] = set()
        self.written: set[int] = set()
        self._writes = writes
        self._without = without

    def write(self, number: int) -> bool:
        """Whether a product is to be written to this slot."""
        is_first = number not in self.touched and number not in self._without
        self.touched.add(number)
        if is_first and self._writes:
            self.written.add(number)
        return is_first and self._writes

    def touch(self, number: int) -> None:
        """Note that something else was added."""
        self.touched.add(number)


def add_product(number: int, rows: Tensor, columns: Tensor) -> None:
    """Add the weight's gradient to its slot, or write it there if nothing else was before."""
    into = slot_of(number).gradient
    is_first = bool(_firsts) and _firsts[-1].write(number)
    if not into.is_cuda:
        rows, columns = rows.to(into.dtype), columns.to(into.dtype)
        torch.mm(rows.t(), columns, out=into) if is_first else into.addmm_(rows.t(), columns)
    elif is_first:
        torch.ops.aten.mm.dtype_out(rows.t(), columns, torch.float32, out=into)
    else:
        torch.ops.aten.addmm.dtype_out(into, rows.t(), columns, torch.float32, out=into)


def add_rows(number: int, rows: Tensor, columns: Tensor) -> None:
    """Add the gradient of a linear layer's weight to its slot, or leave its rows to a keeper."""
    with _turn(number):
        if not _keepers or not _keepers[-1].take(number, rows, columns):
            add_product(number, rows, columns)
    slot_of(number).reached()


def add(number: int, gradient: Tensor) -> None:
    """Add a gradient that was made already to its slot."""
    slot = slot_of(number)
    if _firsts:
        _firsts[-1].touch(number)
    with _turn(number):
        slot.gradient.add_(gradient)
    slot.reached()


def add_lookups(number: int, given: Tensor, index: Tensor, padding: int) -> None:
    """Add the gradient of an embedding's rows to its slot."""
    into = slot_of(number)
    flat = index.reshape(-1)
    rows = given.reshape(flat.shape[0], -1)
    if padding >= 0:
        rows = rows * (flat != padding).unsqueeze(1)
    rows = rows.to(into.gradient.dtype)
    if _firsts:
        _firsts[-1].touch(number)
    with _turn(number):
        into.gradient.index_add_(0, flat, rows)
    into.reached()


def add_sums(number: int, rows: Tensor) -> None:
    """Add the gradient of a linear layer's bias to its slot."""
    add(number, rows.sum(0, dtype=slot_of(number).gradient.dtype))


# -- what a compiler sees ----------------------------------------------------------------------


@torch.library.custom_op("instep::linear_backward", mutates_args=())
def linear_backward(
    given: Tensor, x: Tensor, narrow: Tensor, slot: int, bias_slot: int, below: bool
) -> Tensor:
    """Add the gradients of weight and bias to their slots; return the input's, or nothing."""
    rows, columns = given.reshape(-1, given.shape[-1]), x.reshape(-1, x.shape[-1])
    if is_added(slot):
        add_rows(slot, rows, columns)
    if is_added(bias_slot):
        add_sums(bias_slot, rows)
    return given @ narrow if below else given.new_zeros(())


@linear_backward.register_fake
def _(given: Tensor, x: Tensor, narrow: Tensor, slot: int, bias_slot: int, below: bool) -> Tensor:  # noqa: ARG001
    return given.new_empty((*given.shape[:-1], narrow.shape[1]) if below else ())


def convolved_back(
    given: Tensor,
    x: Tensor,
    narrow: Tensor,
    shape: tuple[list[int], list[int], list[int], int],
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of a convolution: the input's, the weight's, the bias's, as wanted."""
    stride, padding, dilation, groups = shape
    made: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        given,
        x,
        narrow,
        [narrow.shape[0]] if wanted[2] else None,
        stride,
        padding,
        dilation,
        False,  # not transposed
        [0] * len(stride),
        groups,
        wanted,
    )
    return made


@torch.library.custom_op("instep::convolution_backward", mutates_args=())
def convolution_backward(
    given: Tensor,
    x: Tensor,
    narrow: Tensor,
    slot: int,
    bias_slot: int,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    below: bool,
) -> Tensor:
    """Add the gradients of weight and bias to their slots; return the input's, or nothing."""
    wanted = [below, is_added(slot), is_added(bias_slot)]
    shape = (stride, padding, dilation, groups)
    made, *rest = convolved_back(given, x, narrow, shape, wanted)
    for number, gradient, is_wanted in zip((slot, bias_slot), rest, wanted[1:], strict=True):
        if is_wanted:
            add(number, gradient)
    if not below:
        return given.new_zeros(())
    # What a compiler was told: the strides of the input.
    return made if made.stride() == x.stride() else torch.empty_like(x).copy_(made)


@convolution_backward.register_fake
def _(
    given: Tensor,
    x: Tensor,
    narrow: Tensor,  # noqa: ARG001
    slot: int,  # noqa: ARG001
    bias_slot: int,  # noqa: ARG001
    stride: list[int],  # noqa: ARG001
    padding: list[int],  # noqa: ARG001
    dilation: list[int],  # noqa: ARG001
    groups: int,  # noqa: ARG001
    below: bool,
) -> Tensor:
    return torch.empty_like(x) if below else given.new_empty(())


@torch.library.custom_op("instep::embedding_backward", mutates_args=())
def embedding_backward(given: Tensor, index: Tensor, padding: int, slot: int) -> Tensor:
    """Add the rows' gradient to their slot; return the anchor's, which is nothing."""
    if is_added(slot):
        add_lookups(slot, given, index, padding)
    return given.new_zeros(())


@embedding_backward.register_fake
def _(given: Tensor, index: Tensor, padding: int, slot: int) -> Tensor:  # noqa: ARG001
    return given.new_empty(())
