"""`fuse`: inside a window, weights are cast once, and weight gradients are added where they belong.

Under bf16 autocast a linear layer casts its fp32 weight for every micro-batch, writes the weight's
gradient in bf16, casts that to fp32 and adds it to `.grad`: 26 bytes per parameter where 8 are
needed. Here the bf16 copy is the one that the last update wrote, and the matrix product of the
weight's gradient adds into the fp32 gradient itself, which also spares it the rounding to bf16.

It applies while a window of a `Stepper(..., fused=True)` is open, under autocast, with gradients
on. Everywhere else (evaluation, other loops, other types) the modules do what they always do.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


class Slot:
    """What an open window lends to a parameter: where its bf16 copy and its gradient are."""

    __slots__ = ("gradient", "narrow", "reached")

    def __init__(self, narrow: Tensor, gradient: Tensor, reached: Callable[[], None]) -> None:
        self.narrow = narrow
        self.gradient = gradient
        self.reached = reached


def lend(parameter: Tensor, slot: Slot | None) -> None:
    """Give a parameter its slot, or take it away."""
    parameter._instep_slot = slot  # type: ignore[attr-defined] # noqa: SLF001


def _slot(parameter: Tensor) -> Slot | None:
    return getattr(parameter, "_instep_slot", None)


def fuse(model: nn.Module) -> nn.Module:
    """Let the Linear and Embedding layers of a model add into fp32 gradients directly.

    The model is changed in place and returned; its classes, parameters and `state_dict` stay as
    they are. Layers of a subclass with a forward of its own are left alone. `unfuse` undoes it.
    """
    for module in model.modules():
        if type(module).forward is nn.Linear.forward:
            module.forward = types.MethodType(_linear, module)
        elif type(module).forward is nn.Embedding.forward and _is_plain(module):
            module.forward = types.MethodType(_embedding, module)
    return model


def unfuse(model: nn.Module) -> nn.Module:
    """Undo `fuse`."""
    for module in model.modules():
        forward = vars(module).get("forward")
        if getattr(forward, "__func__", None) in (_linear, _embedding):
            del module.forward
    return model


def is_fused(model: nn.Module) -> bool:
    """Whether any layer of a model was fused."""
    kinds = (_linear, _embedding)
    return any(
        getattr(vars(module).get("forward"), "__func__", None) in kinds
        for module in model.modules()
    )


def _is_plain(module: Any) -> bool:
    return module.max_norm is None and not module.scale_grad_by_freq and not module.sparse


def _linear(self: nn.Linear, x: Tensor) -> Tensor:
    slot = _slot(self.weight)
    if slot is None or not _applies(x, self.weight):
        return functional.linear(x, self.weight, self.bias)
    made: Tensor = _Linear.apply(x.to(slot.narrow.dtype), self.weight, slot)
    return made if self.bias is None else made + self.bias.to(made.dtype)


def _embedding(self: nn.Embedding, index: Tensor) -> Tensor:
    slot = _slot(self.weight)
    if slot is None or not torch.is_grad_enabled() or not self.weight.requires_grad:
        return functional.embedding(index, self.weight, self.padding_idx)
    made: Tensor = _Embedding.apply(index, self.weight, self.padding_idx, slot)
    return made


def _applies(x: Tensor, weight: Tensor) -> bool:
    kind = x.device.type
    return (
        torch.is_grad_enabled()
        and weight.requires_grad
        and torch.is_autocast_enabled(kind)
        and torch.get_autocast_dtype(kind) is torch.bfloat16
        and x.is_floating_point()
    )


@torch.library.custom_op("instep::add_product", mutates_args=("into",))
def add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """Add leftᵀ · right to an fp32 matrix, in one matrix product on a CUDA device."""
    if into.is_cuda:
        torch.ops.aten.addmm.dtype_out(into, left.t(), right, torch.float32, out=into)
    else:
        into.addmm_(left.t().to(into.dtype), right.to(into.dtype))


@torch.library.custom_op("instep::add_rows", mutates_args=("into",))
def add_rows(into: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add rows to the rows of a matrix that the index names."""
    into.index_add_(0, index, rows.to(into.dtype))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, slot: Slot) -> Tensor:  # noqa: ARG004
        # The copy is renewed by the kernel at the close, which no graph outlives.
        ctx.save_for_backward(x)
        ctx.slot = slot
        return x @ slot.narrow.t()

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        (x,) = ctx.saved_tensors
        slot: Slot = ctx.slot
        gradient = outer[0].to(slot.narrow.dtype)
        wide = gradient.flatten(0, -2) if gradient.dim() > 1 else gradient.unsqueeze(0)
        add_product(slot.gradient, wide, x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0))
        slot.reached()
        below = gradient @ slot.narrow if ctx.needs_input_grad[0] else None
        return below, None, None


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, index: Tensor, weight: Tensor, padding: int | None, slot: Slot) -> Tensor:
        ctx.save_for_backward(index)
        ctx.padding, ctx.slot = padding, slot
        return functional.embedding(index, weight)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        (index,) = ctx.saved_tensors
        slot: Slot = ctx.slot
        rows = outer[0].flatten(0, -2)
        flat = index.flatten()
        if ctx.padding is not None:
            rows = rows * (flat != ctx.padding).unsqueeze(1)
        add_rows(slot.gradient, flat, rows)
        slot.reached()
        return None, None, None, None
