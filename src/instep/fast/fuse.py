"""`fuse`: inside a window, weights are cast once, and weight gradients are added where they belong.

Under bf16 autocast a linear layer casts its fp32 weight for every micro-batch, writes the weight's
gradient in bf16, casts that to fp32 and adds it to `.grad`: 26 bytes per parameter where 8 are
needed. Here the bf16 copy is the one that the last update wrote, and the matrix product of the
weight's gradient adds into the fp32 gradient itself, which also spares it the rounding to bf16.
A convolution's gradient is added as it is, without the cast between.

It applies while a window of a `Stepper(..., fused=True)` is open, under autocast, with gradients
on. Everywhere else (evaluation, other loops, other types) the modules do what they always do.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from instep.fast.operators import NOWHERE, Convolution, Embedding, Linear, anchor, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from instep.fast.operators import Slot


LENT = "_instep_lent"
"""What an open window lends to a layer, by the names of its parameters."""
ANCHOR = "_instep_anchor"
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Loan(NamedTuple):
    """A parameter's bf16 copy, and the slot of its gradient."""

    narrow: Tensor
    slot: int


class Place(NamedTuple):
    """A parameter of a fused layer."""

    layer: nn.Module
    name: str


def places_of(models: Iterable[nn.Module]) -> dict[int, list[Place]]:
    """Return the fused layers of each parameter, by its id; tied weights have several."""
    found: dict[int, list[Place]] = {}
    for model in models:
        for module in model.modules():
            if _is_fused_layer(module):
                for name in ("weight", "bias"):
                    parameter = getattr(module, name, None)
                    if parameter is not None:
                        found.setdefault(id(parameter), []).append(Place(module, name))
    return found


def lend(places: Iterable[Place], narrow: Tensor, number: int, slot: Slot) -> None:
    """Let layers add to the gradient of this slot."""
    fill(number, slot)
    loan = Loan(narrow, number)
    for layer, name in places:
        # A matrix product writes rows; a convolution's gradient is added, however it lies.
        if slot.gradient.is_contiguous() or isinstance(layer, CONVOLUTIONS):
            vars(layer)[LENT][name] = loan
            setattr(layer, ANCHOR, anchor(narrow.device))


def take_back(places: Iterable[Place]) -> None:
    """Let layers do what they always do."""
    for layer, name in places:
        loan = vars(layer)[LENT][name]
        if loan is not None:
            fill(loan.slot, None)
            vars(layer)[LENT][name] = None


def fuse(model: nn.Module) -> nn.Module:
    """Let Linear, convolution and Embedding layers of a model add into fp32 gradients directly.

    The model is changed in place and returned; its classes, parameters and `state_dict` stay as
    they are. Layers of a subclass with a forward of its own are left alone. `unfuse` undoes it.

    >>> import torch
    >>> model = fuse(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
    >>> type(model[0]).__name__, sorted(model.state_dict())
    ('Linear', ['0.bias', '0.weight'])
    """
    for module in model.modules():
        forward = _forward_of(module)
        if forward is not None and "forward" not in vars(module):
            module.forward = types.MethodType(forward, module)
            setattr(module, LENT, {"weight": None, "bias": None})
            setattr(module, ANCHOR, None)
    return model


def unfuse(model: nn.Module) -> nn.Module:
    """Undo `fuse`."""
    for module in model.modules():
        if _is_fused_layer(module):
            take_back([Place(module, "weight"), Place(module, "bias")])
            for name in ("forward", LENT, ANCHOR):
                delattr(module, name)
    return model


def _forward_of(module: nn.Module) -> Callable[[Any, Tensor], Tensor] | None:
    kind: Any = type(module)
    if kind.forward is nn.Linear.forward:
        return _linear
    if kind.forward is nn.Embedding.forward and _is_plain_embedding(module):
        return _embedding
    for convolution in CONVOLUTIONS:
        if (
            kind.forward is convolution.forward
            and kind._conv_forward is convolution._conv_forward  # noqa: SLF001 -- as overridden
            and _is_plain_convolution(module)
        ):
            return _convolution
    return None


def _is_fused_layer(module: nn.Module) -> bool:
    forward = vars(module).get("forward")
    return getattr(forward, "__func__", None) in (_linear, _embedding, _convolution)


def _is_plain_embedding(module: Any) -> bool:
    return module.max_norm is None and not module.scale_grad_by_freq and not module.sparse


def _is_plain_convolution(module: Any) -> bool:
    return module.padding_mode == "zeros" and not isinstance(module.padding, str)


def _linear(self: Any, x: Tensor) -> Tensor:
    lent = self._instep_lent
    weight = lent["weight"]
    if weight is None or not _applies(x, self.weight):
        return functional.linear(x, self.weight, self.bias)
    like = weight.narrow.dtype
    bias, slot, later = _bias_of(self, lent["bias"])
    made: Tensor = Linear.apply(
        x.to(like), self._instep_anchor, weight.narrow, weight.slot, bias, slot
    )
    return made if later is None else made + later.to(like)


def _convolution(self: Any, x: Tensor) -> Tensor:
    lent = self._instep_lent
    weight = lent["weight"]
    is_batch = x.dim() == self.weight.dim()
    if weight is None or not is_batch or not _applies(x, self.weight):
        made: Tensor = self._conv_forward(x, self.weight, self.bias)
        return made
    like = weight.narrow.dtype
    bias, slot, later = _bias_of(self, lent["bias"])
    shape = (self.stride, self.padding, self.dilation, self.groups)
    made = Convolution.apply(
        x.to(like), self._instep_anchor, weight.narrow, weight.slot, bias, slot, *shape
    )
    return made if later is None else made + later.to(like).view(-1, *[1] * (x.dim() - 2))


def _bias_of(layer: Any, loan: Loan | None) -> tuple[Tensor | None, int, Tensor | None]:
    """Return the bias as it is used: its narrow copy with a slot, or itself, to be added later."""
    if layer.bias is None:
        return None, NOWHERE, None
    if loan is None or not layer.bias.requires_grad:
        return None, NOWHERE, layer.bias
    return loan.narrow, loan.slot, None


def _embedding(self: Any, index: Tensor) -> Tensor:
    loan = self._instep_lent["weight"]
    if loan is None or not torch.is_grad_enabled() or not self.weight.requires_grad:
        return functional.embedding(index, self.weight, self.padding_idx)
    padding = -1 if self.padding_idx is None else self.padding_idx
    weight = self.weight.detach()
    made: Tensor = Embedding.apply(index, self._instep_anchor, weight, padding, loan.slot)
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
