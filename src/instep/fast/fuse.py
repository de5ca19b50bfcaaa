"""`fuse`: inside a window, weights are cast once, and weight gradients are added where they belong.

Under bf16 autocast a linear layer casts its fp32 weight for every micro-batch, writes the weight's
gradient in bf16, casts that to fp32 and adds it to `.grad`: 26 bytes per parameter where 8 are
needed. Here the bf16 copy is the one that the last update wrote, and the matrix product of the
weight's gradient adds into the fp32 gradient itself, which also spares it the rounding to bf16.

It applies while a window of a `Stepper(..., fused=True)` is open, under autocast, with gradients
on. Everywhere else (evaluation, other loops, other types) the modules do what they always do.
"""

from __future__ import annotations

import itertools
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


NARROW, SLOT, ANCHOR = "_instep_narrow", "_instep_slot", "_instep_anchor"
"""What an open window lends to a layer: its weight's bf16 copy, and the number of its slot.

A slot says where the gradient is summed. The gradient itself is no argument of anything: all of
them are views of one buffer, and a compiler that is told they change would copy the whole of it.
"""


class Slot(NamedTuple):
    """Where the gradient of a weight is summed, and whom to tell that something was added."""

    gradient: Tensor
    reached: Callable[[], None]


_slots: dict[int, Slot] = {}
_numbers = itertools.count()


def layers_of(models: Iterable[nn.Module]) -> dict[int, list[nn.Module]]:
    """Return the fused layers of each weight, by its id; tied weights have several."""
    found: dict[int, list[nn.Module]] = {}
    for model in models:
        for module in model.modules():
            if _is_fused_layer(module):
                found.setdefault(id(module.weight), []).append(module)
    return found


def new_slot() -> int:
    """Return a number for a slot; a weight keeps it from window to window."""
    return next(_numbers)


def lend(layers: Iterable[nn.Module], narrow: Tensor, number: int, slot: Slot) -> None:
    """Let layers add to the gradient of this slot."""
    _slots[number] = slot
    for layer in layers:
        setattr(layer, NARROW, narrow)
        setattr(layer, SLOT, number)
        setattr(layer, ANCHOR, _anchor(narrow.device))


def take_back(layers: Iterable[nn.Module]) -> None:
    """Let layers do what they always do."""
    for layer in layers:
        _slots.pop(vars(layer)[SLOT], None)
        setattr(layer, NARROW, None)
        setattr(layer, SLOT, None)


def fuse(model: nn.Module) -> nn.Module:
    """Let the Linear and Embedding layers of a model add into fp32 gradients directly.

    The model is changed in place and returned; its classes, parameters and `state_dict` stay as
    they are. Layers of a subclass with a forward of its own are left alone. `unfuse` undoes it.

    >>> import torch
    >>> model = fuse(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
    >>> type(model[0]).__name__, sorted(model.state_dict())
    ('Linear', ['0.bias', '0.weight'])
    """
    for module in model.modules():
        forward: Callable[[Any, Tensor], Tensor] | None = None
        if type(module).forward is nn.Linear.forward:
            forward = _linear
        elif type(module).forward is nn.Embedding.forward and _is_plain(module):
            forward = _embedding
        if forward is not None and "forward" not in vars(module):
            module.forward = types.MethodType(forward, module)
            setattr(module, NARROW, None)
            setattr(module, SLOT, None)
            setattr(module, ANCHOR, None)
    return model


def unfuse(model: nn.Module) -> nn.Module:
    """Undo `fuse`."""
    for module in model.modules():
        if _is_fused_layer(module):
            take_back([module])
            for name in ("forward", NARROW, SLOT, ANCHOR):
                delattr(module, name)
    return model


def _is_fused_layer(module: nn.Module) -> bool:
    forward = vars(module).get("forward")
    return getattr(forward, "__func__", None) in (_linear, _embedding)


def _is_plain(module: Any) -> bool:
    return module.max_norm is None and not module.scale_grad_by_freq and not module.sparse


def _linear(self: Any, x: Tensor) -> Tensor:
    number = self._instep_slot
    if number is None or not _applies(x, self.weight):
        return functional.linear(x, self.weight, self.bias)
    narrow = self._instep_narrow
    made: Tensor = _Linear.apply(x.to(narrow.dtype), self._instep_anchor, narrow, number)
    return made if self.bias is None else made + self.bias.to(made.dtype)


def _embedding(self: Any, index: Tensor) -> Tensor:
    number = self._instep_slot
    if number is None or not torch.is_grad_enabled() or not self.weight.requires_grad:
        return functional.embedding(index, self.weight, self.padding_idx)
    padding = -1 if self.padding_idx is None else self.padding_idx
    weight = self.weight.detach()
    made: Tensor = _Embedding.apply(index, self._instep_anchor, weight, padding, number)
    return made


_anchors: dict[torch.device, Tensor] = {}


def _anchor(device: torch.device) -> Tensor:
    """Return a tensor of one element that every fused layer depends on.

    Its gradient is always zero. It is what makes a layer's output need a backward when its input
    does not, and what keeps a compiler from leaving out a backward whose result nobody reads.
    """
    known = _anchors.get(device)
    if known is None:
        known = _anchors[device] = torch.zeros((), device=device, requires_grad=True)
    return known


def _applies(x: Tensor, weight: Tensor) -> bool:
    kind = x.device.type
    return (
        torch.is_grad_enabled()
        and weight.requires_grad
        and torch.is_autocast_enabled(kind)
        and torch.get_autocast_dtype(kind) is torch.bfloat16
        and x.is_floating_point()
    )


@torch.library.custom_op("instep::linear_backward", mutates_args=())
def _linear_backward(given: Tensor, x: Tensor, narrow: Tensor, number: int) -> Tensor:
    """Add the weight's gradient to its slot; return that of the input.

    Nothing but the window's close reads what is in a slot, so no compiler has to know of it.
    """
    slot = _slots[number]
    rows, into = given.reshape(-1, given.shape[-1]), slot.gradient
    columns = x.reshape(-1, x.shape[-1])
    if into.is_cuda:
        torch.ops.aten.addmm.dtype_out(into, rows.t(), columns, torch.float32, out=into)
    else:
        into.addmm_(rows.t().to(into.dtype), columns.to(into.dtype))
    slot.reached()
    return given @ narrow


@_linear_backward.register_fake
def _(given: Tensor, x: Tensor, narrow: Tensor, number: int) -> Tensor:  # noqa: ARG001
    return torch.empty_like(x)


@torch.library.custom_op("instep::embedding_backward", mutates_args=())
def _embedding_backward(given: Tensor, index: Tensor, padding: int, number: int) -> Tensor:
    """Add the rows' gradient to their slot; return the anchor's, which is nothing."""
    slot = _slots[number]
    flat = index.reshape(-1)
    rows = given.reshape(flat.shape[0], -1)
    if padding >= 0:
        rows = rows * (flat != padding).unsqueeze(1)
    slot.gradient.index_add_(0, flat, rows.to(slot.gradient.dtype))
    slot.reached()
    return given.new_zeros(())


@_embedding_backward.register_fake
def _(given: Tensor, index: Tensor, padding: int, number: int) -> Tensor:  # noqa: ARG001
    return given.new_empty(())


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, narrow: Tensor, number: int) -> Tensor:
        ctx.save_for_backward(x, narrow)
        ctx.number, ctx.like = number, anchor.dtype
        return x @ narrow.t()

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        x, narrow = ctx.saved_tensors
        below = _linear_backward(outer[0].to(narrow.dtype), x, narrow, ctx.number)
        if ctx.needs_input_grad[0]:
            return below, None, None, None
        return None, below.new_zeros((), dtype=ctx.like) * below[(0,) * below.dim()], None, None


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 -- autograd passes by position
        ctx: Any, index: Tensor, anchor: Tensor, weight: Tensor, padding: int, number: int
    ) -> Tensor:
        ctx.save_for_backward(index)
        ctx.padding, ctx.number, ctx.like = padding, number, anchor.dtype
        return functional.embedding(index, weight)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        (index,) = ctx.saved_tensors
        nothing = _embedding_backward(outer[0], index, ctx.padding, ctx.number)
        return None, nothing.to(ctx.like), None, None, None
