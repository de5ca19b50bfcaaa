"""Fused layers in autograd's graph: forwards with narrow copies, backwards that add to slots.

The parameters themselves are inputs of every function here, though no forward reads them: so that
autograd knows of them. A window's own backward adds their gradients to their slots and returns
none. Any other (`torch.autograd.grad`, a plain backward, one that is differentiated again) gets
from here what it would get from PyTorch's layers.
"""

from __future__ import annotations

# ruff: noqa: FBT003, PLR0917 -- autograd functions are called by position
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from instep.errors import WindowError
from instep.fast import operators
from instep.fast.slots import NOWHERE, Answer, answer, is_filled, refuse_over, will_come

if TYPE_CHECKING:
    from collections.abc import Sequence

_anchors: dict[torch.device, Tensor] = {}
_INPUT, _WEIGHT, _BIAS = range(3)
"""Where they stand among the inputs of a function."""


def anchor(device: torch.device) -> Tensor:
    """Return a tensor of one element that every fused layer depends on.

    Its gradient is always zero. It keeps a compiler from leaving out a backward whose result nobody
    reads.
    """
    known = _anchors.get(device)
    if known is None:
        known = _anchors[device] = torch.zeros((), device=device, requires_grad=True)
    return known


def _passed_on(below: Tensor, like: torch.dtype, *, wanted: bool, others: int) -> Any:
    """Return what a compiled backward gives to the input, the parameters, the anchor, the others.

    Where the input needs nothing, what came of the operator is the anchor's.
    """
    rest = (None,) * others
    return (below, None, None, None, *rest) if wanted else (None, None, None, below.to(like), *rest)


def _keep(ctx: Any, parameters: tuple[Tensor, Tensor | None], slots: tuple[int, int]) -> None:
    """Keep what a backward needs to know of the parameters."""
    ctx.slots = slots
    if not torch.compiler.is_compiling():
        ctx.parameters = parameters
        ctx.version = parameters[0]._version  # noqa: SLF001 -- torch's own counter


def _comes(ctx: Any, place: int) -> bool | None:
    """Whether the backward that runs now comes to what accumulates the gradient of an input."""
    return will_come(ctx.next_functions[place][0])


def _asked(ctx: Any) -> list[Answer]:
    """Return what is to be done about weight and bias."""
    found = [
        Answer.NONE if number == NOWHERE else answer(number, partial(_comes, ctx, place))
        for place, number in zip((_WEIGHT, _BIAS), ctx.slots, strict=True)
    ]
    # What is added to a slot has no graph.
    is_again = torch.is_grad_enabled()
    return [Answer.GIVE if is_again and one is Answer.ADD else one for one in found]


def _saved(ctx: Any) -> tuple[Tensor, Tensor]:
    """Return the input, and the weights to multiply with.

    The narrow copy counts a version when its window ends, so that a graph from before is noticed.
    """
    try:
        x, narrow = ctx.saved_tensors
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            refuse_over()
        raise
    if not torch.is_grad_enabled():
        return x, narrow
    # Somebody differentiates this backward: a copy has no graph, the weight itself has.
    weight = ctx.parameters[0]
    if weight._version != ctx.version:  # noqa: SLF001 -- torch's own counter
        raise WindowError(
            "a weight was written between a fused layer's forward and its second backward.",
            why="the derivative of a gradient needs the weight that the forward has used.",
            fix="write to weights between windows only, or call instep.unfuse(model).",
            more="fast",
        )
    return x, weight.to(narrow.dtype)


def _settle(
    ctx: Any, found: Sequence[Answer], gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Add gradients to their slots, or return them in the types of their parameters."""
    given: list[Tensor | None] = [None, None]
    every = zip(found, gradients, ctx.slots, ctx.parameters, strict=True)
    for place, (one, gradient, number, parameter) in enumerate(every):
        if gradient is None:
            continue
        if one is Answer.ADD:
            operators.add(number, gradient)
        elif one is Answer.GIVE:
            given[place] = gradient.to(parameter.dtype)
    return given


class Linear(torch.autograd.Function):
    """`functional.linear` with the narrow copies of weight and bias."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        anchor: Tensor,
        narrow: Tensor,
        narrow_bias: Tensor | None,
        slot: int,
        bias_slot: int,
    ) -> Tensor:
        """Multiply."""
        ctx.save_for_backward(x, narrow)
        ctx.like = anchor.dtype
        _keep(ctx, (weight, bias), (slot, bias_slot))
        return functional.linear(x, narrow, narrow_bias)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        """Add to the slots; pass on."""
        wanted = ctx.needs_input_grad[_INPUT]
        if torch.compiler.is_compiling():
            x, narrow = ctx.saved_tensors
            given = outer[0].to(narrow.dtype)
            below = operators.linear_backward(given, x, narrow, *ctx.slots, wanted)
            return _passed_on(below, ctx.like, wanted=wanted, others=4)
        found = _asked(ctx)
        x, narrow = _saved(ctx)
        given = outer[0].to(narrow.dtype)
        rows, columns = given.reshape(-1, given.shape[-1]), x.reshape(-1, x.shape[-1])
        made: list[Tensor | None] = [None, None]
        if found[0] is Answer.ADD:
            operators.add_rows(ctx.slots[0], rows, columns)
        elif found[0] is Answer.GIVE:
            made[0] = (rows.t() @ columns).to(ctx.parameters[0].dtype)
        if found[1] is Answer.ADD:
            operators.add_sums(ctx.slots[1], rows)
        elif found[1] is Answer.GIVE:
            made[1] = rows.sum(0, dtype=ctx.parameters[1].dtype)
        return given @ narrow if wanted else None, *made, *(None,) * 5


class Convolution(torch.autograd.Function):
    """A convolution with the narrow copies of weight and bias."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        anchor: Tensor,
        narrow: Tensor,
        narrow_bias: Tensor | None,
        slot: int,
        bias_slot: int,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
    ) -> Tensor:
        """Convolve."""
        ctx.save_for_backward(x, narrow)
        ctx.like = anchor.dtype
        ctx.shape = (list(stride), list(padding), list(dilation), groups)
        _keep(ctx, (weight, bias), (slot, bias_slot))
        return torch.convolution(
            x, narrow, narrow_bias, stride, padding, dilation, False, [0] * len(stride), groups
        )

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        """Add to the slots; pass on."""
        wanted = ctx.needs_input_grad[_INPUT]
        if torch.compiler.is_compiling():
            x, narrow = ctx.saved_tensors
            given = outer[0].to(narrow.dtype)
            below = operators.convolution_backward(given, x, narrow, *ctx.slots, *ctx.shape, wanted)
            return _passed_on(below, ctx.like, wanted=wanted, others=8)
        found = _asked(ctx)
        x, narrow = _saved(ctx)
        given = outer[0].to(narrow.dtype)
        asked = [wanted, *(one is not Answer.NONE for one in found)]
        below, *gradients = operators.convolved_back(given, x, narrow, ctx.shape, asked)
        return below if wanted else None, *_settle(ctx, found, gradients), *(None,) * 9


class Embedding(torch.autograd.Function):
    """`functional.embedding`; its rows are small, so there is no narrow copy."""

    @staticmethod
    def forward(
        ctx: Any, index: Tensor, weight: Tensor, anchor: Tensor, padding: int, slot: int
    ) -> Tensor:
        """Look up."""
        ctx.save_for_backward(index)
        ctx.padding, ctx.slot, ctx.like = padding, slot, anchor.dtype
        ctx.size = weight.shape[0]
        return functional.embedding(index, weight)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        """Add to the slot; pass on."""
        (index,) = ctx.saved_tensors
        if torch.compiler.is_compiling():
            nothing = operators.embedding_backward(outer[0], index, ctx.padding, ctx.slot)
            return None, None, nothing.to(ctx.like), None, None
        found, made = Answer.GIVE, None
        # Its gradient does not depend on the weights, so that a graph may outlive its window.
        if is_filled(ctx.slot) and not torch.is_grad_enabled():
            found = answer(ctx.slot, partial(_comes, ctx, _WEIGHT))
        if found is Answer.ADD:
            operators.add_lookups(ctx.slot, outer[0], index, ctx.padding)
        elif found is Answer.GIVE:
            made = torch.ops.aten.embedding_dense_backward(
                outer[0], index, ctx.size, ctx.padding, False
            )
        return None, made, None, None, None
