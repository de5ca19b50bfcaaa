"""The operators of fused layers: their backwards add weight gradients where they are summed.

A slot says where that is. The gradient itself is no argument of anything: all of them are views of
one buffer, and a compiler that is told they change would copy the whole of it. Nothing but the
window's close reads what is in a slot, so no compiler has to know of it.
"""

from __future__ import annotations

# ruff: noqa: FBT001, FBT003, PLR0917 -- operators and autograd functions are called by position
import contextlib
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from instep.fast.turns import Turns


class Slot(NamedTuple):
    """Where the gradient of a parameter is summed, and whom to tell that something was added."""

    gradient: Tensor
    reached: Callable[[], None]


NOWHERE = -1
"""The slot of a parameter that does not exist."""
_slots: dict[int, Slot] = {}
_numbers = itertools.count()


def new_slot() -> int:
    """Return a number for a slot; a parameter keeps it from window to window."""
    return next(_numbers)


def fill(number: int, slot: Slot | None) -> None:
    """Say where a slot leads, or that it leads nowhere now."""
    if slot is None:
        _slots.pop(number, None)
    else:
        _slots[number] = slot


class Keeper(Protocol):
    """Something that takes the rows of a weight's gradient instead of having them multiplied."""

    def take(self, number: int, rows: Tensor, columns: Tensor) -> bool:
        """Take them, or not."""


_keepers: list[Keeper] = []


@contextlib.contextmanager
def keeping(keeper: Keeper) -> Iterator[None]:
    """Offer the rows of every linear layer's backward to a keeper."""
    _keepers.append(keeper)
    try:
        yield
    finally:
        _keepers.pop()


_turns: list[Turns] = []


@contextlib.contextmanager
def taking(turns: Turns) -> Iterator[None]:
    """Let whoever adds to a slot take turns with the other branches of a recording."""
    _turns.append(turns)
    try:
        yield
    finally:
        _turns.pop()


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


_firsts: list[Firsts] = []


@contextlib.contextmanager
def noting(firsts: Firsts) -> Iterator[None]:
    """Note what is added to slots, and by what first."""
    _firsts.append(firsts)
    try:
        yield
    finally:
        _firsts.pop()


def add_product(number: int, rows: Tensor, columns: Tensor) -> None:
    """Add the weight's gradient to its slot, or write it there if nothing else was before."""
    into = _slots[number].gradient
    is_first = bool(_firsts) and _firsts[-1].write(number)
    if not into.is_cuda:
        rows, columns = rows.to(into.dtype), columns.to(into.dtype)
        torch.mm(rows.t(), columns, out=into) if is_first else into.addmm_(rows.t(), columns)
    elif is_first:
        torch.ops.aten.mm.dtype_out(rows.t(), columns, torch.float32, out=into)
    else:
        torch.ops.aten.addmm.dtype_out(into, rows.t(), columns, torch.float32, out=into)


def _add(number: int, gradient: Tensor) -> None:
    """Add a gradient that was made already to its slot."""
    slot = _slots[number]
    if _firsts:
        _firsts[-1].touch(number)
    with _turn(number):
        slot.gradient.add_(gradient)
    slot.reached()


_anchors: dict[torch.device, Tensor] = {}


def anchor(device: torch.device) -> Tensor:
    """Return a tensor of one element that every fused layer depends on.

    Its gradient is always zero. It is what makes a layer's output need a backward when its input
    does not, and what keeps a compiler from leaving out a backward whose result nobody reads.
    """
    known = _anchors.get(device)
    if known is None:
        known = _anchors[device] = torch.zeros((), device=device, requires_grad=True)
    return known


# -- linear ------------------------------------------------------------------------------------


@torch.library.custom_op("instep::linear_backward", mutates_args=())
def _linear_backward(
    given: Tensor, x: Tensor, narrow: Tensor, slot: int, bias_slot: int, below: bool
) -> Tensor:
    """Add the gradients of weight and bias to their slots; return the input's, or nothing."""
    rows, columns = given.reshape(-1, given.shape[-1]), x.reshape(-1, x.shape[-1])
    with _turn(slot):
        if not _keepers or not _keepers[-1].take(slot, rows, columns):
            add_product(slot, rows, columns)
    _slots[slot].reached()
    if bias_slot != NOWHERE:
        _add(bias_slot, rows.sum(0, dtype=_slots[bias_slot].gradient.dtype))
    return given @ narrow if below else given.new_zeros(())


@_linear_backward.register_fake
def _(given: Tensor, x: Tensor, narrow: Tensor, slot: int, bias_slot: int, below: bool) -> Tensor:  # noqa: ARG001
    return given.new_empty((*given.shape[:-1], narrow.shape[1]) if below else ())


class Linear(torch.autograd.Function):
    """`functional.linear` with the narrow copies of weight and bias."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor,
        narrow: Tensor,
        slot: int,
        bias: Tensor | None,
        bias_slot: int,
    ) -> Tensor:
        """Multiply."""
        ctx.save_for_backward(x, narrow)
        ctx.slots, ctx.like = (slot, bias_slot), anchor.dtype
        return functional.linear(x, narrow, bias)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        """Add to the slots; pass on."""
        x, narrow = ctx.saved_tensors
        wanted = ctx.needs_input_grad[0]
        below = _linear_backward(outer[0].to(narrow.dtype), x, narrow, *ctx.slots, wanted)
        return _passed_on(below, ctx.like, wanted=wanted, others=4)


def _passed_on(below: Tensor, like: torch.dtype, *, wanted: bool, others: int) -> Any:
    """Return what a backward gives to the input, the anchor and the others.

    Where the input needs nothing, what came of the operator is the anchor's, so that a compiler
    does not leave the operator out.
    """
    rest = (None,) * others
    return (below, None, *rest) if wanted else (None, below.to(like), *rest)


# -- convolution -------------------------------------------------------------------------------


@torch.library.custom_op("instep::convolution_backward", mutates_args=())
def _convolution_backward(
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
    has_bias = bias_slot != NOWHERE
    made, weights, biases = torch.ops.aten.convolution_backward(
        given,
        x,
        narrow,
        [narrow.shape[0]] if has_bias else None,
        stride,
        padding,
        dilation,
        False,  # not transposed
        [0] * len(stride),
        groups,
        [below, True, has_bias],
    )
    for number, gradient in ((slot, weights), (bias_slot, biases)):
        if number != NOWHERE:
            _add(number, gradient)
    if not below:
        return given.new_zeros(())
    # What a compiler was told: the strides of the input.
    return made if made.stride() == x.stride() else torch.empty_like(x).copy_(made)


@_convolution_backward.register_fake
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


class Convolution(torch.autograd.Function):
    """A convolution with the narrow copies of weight and bias."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor,
        narrow: Tensor,
        slot: int,
        bias: Tensor | None,
        bias_slot: int,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
    ) -> Tensor:
        """Convolve."""
        ctx.save_for_backward(x, narrow)
        ctx.slots, ctx.like = (slot, bias_slot), anchor.dtype
        ctx.shape = (list(stride), list(padding), list(dilation), groups)
        return torch.convolution(
            x, narrow, bias, stride, padding, dilation, False, [0] * len(stride), groups
        )

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        """Add to the slots; pass on."""
        x, narrow = ctx.saved_tensors
        wanted = ctx.needs_input_grad[0]
        given = outer[0].to(narrow.dtype)
        below = _convolution_backward(given, x, narrow, *ctx.slots, *ctx.shape, wanted)
        return _passed_on(below, ctx.like, wanted=wanted, others=8)


# -- embedding ---------------------------------------------------------------------------------


@torch.library.custom_op("instep::embedding_backward", mutates_args=())
def _embedding_backward(given: Tensor, index: Tensor, padding: int, slot: int) -> Tensor:
    """Add the rows' gradient to their slot; return the anchor's, which is nothing."""
    into = _slots[slot]
    flat = index.reshape(-1)
    rows = given.reshape(flat.shape[0], -1)
    if padding >= 0:
        rows = rows * (flat != padding).unsqueeze(1)
    rows = rows.to(into.gradient.dtype)
    if _firsts:
        _firsts[-1].touch(slot)
    with _turn(slot):
        into.gradient.index_add_(0, flat, rows)
    into.reached()
    return given.new_zeros(())


@_embedding_backward.register_fake
def _(given: Tensor, index: Tensor, padding: int, slot: int) -> Tensor:  # noqa: ARG001
    return given.new_empty(())


class Embedding(torch.autograd.Function):
    """`functional.embedding`; its rows are small, so there is no narrow copy."""

    @staticmethod
    def forward(
        ctx: Any, index: Tensor, anchor: Tensor, weight: Tensor, padding: int, slot: int
    ) -> Tensor:
        """Look up."""
        ctx.save_for_backward(index)
        ctx.padding, ctx.slot, ctx.like = padding, slot, anchor.dtype
        return functional.embedding(index, weight)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        """Add to the slot; pass on."""
        (index,) = ctx.saved_tensors
        nothing = _embedding_backward(outer[0], index, ctx.padding, ctx.slot)
        return None, nothing.to(ctx.like), None, None, None
