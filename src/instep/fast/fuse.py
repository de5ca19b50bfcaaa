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

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from instep.fast.functions import Convolution, Embedding, Linear
from instep.fast.lending import CONVOLUTIONS, LENT, Changes, Lent
from instep.fast.slots import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.fast.lending import Loan

_are_transforms_active = torch._C._are_functorch_transforms_active  # noqa: SLF001


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
            # Not a bound method: those are pickled by a name that no class has.
            module.forward = partial(forward, module)
            setattr(module, LENT, Lent(type(module)))
    Changes.count += 1
    return model


def unfuse(model: nn.Module) -> nn.Module:
    """Undo `fuse`, from the next forward on; graphs that an open window has made stay its own.

    >>> import torch
    >>> model = unfuse(fuse(torch.nn.Linear(2, 2)))
    >>> "forward" in vars(model)
    False
    """
    for module in model.modules():
        if LENT in vars(module):
            delattr(module, LENT)
            if _is_fused(vars(module).get("forward")):
                del module.forward
    Changes.count += 1
    return model


def _is_fused(forward: object) -> bool:
    return isinstance(forward, partial) and forward.func in (_linear, _embedding, _convolution)


def _forward_of(module: nn.Module) -> Callable[..., Tensor] | None:
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


def _is_plain_embedding(module: Any) -> bool:
    return module.max_norm is None and not module.scale_grad_by_freq and not module.sparse


def _is_plain_convolution(module: Any) -> bool:
    return module.padding_mode == "zeros" and not isinstance(module.padding, str)


# The arguments have the names that torch gives them, because some call layers by name.


def _linear(self: Any, input: Tensor) -> Tensor:  # noqa: A002
    loan = self._instep_lent.weight
    if loan is None or not _holds(loan, self, self.weight) or not _applies(input, loan.parameter):
        plain: Tensor = type(self).forward(self, input)
        return plain
    like = loan.narrow.dtype
    bias, narrow, slot, later = _bias_of(self)
    lent = (self._instep_lent.anchor, loan.narrow, narrow, loan.slot, slot)
    made: Tensor = Linear.apply(input.to(like), loan.parameter, bias, *lent)
    return made if later is None else made + later.to(like)


def _convolution(self: Any, input: Tensor) -> Tensor:  # noqa: A002
    loan = self._instep_lent.weight
    if (
        loan is None
        or not _holds(loan, self, self.weight)
        or input.dim() != loan.parameter.dim()
        or not _applies(input, loan.parameter)
        or not _is_plain_convolution(self)
    ):
        plain: Tensor = type(self).forward(self, input)
        return plain
    like = loan.narrow.dtype
    bias, narrow, slot, later = _bias_of(self)
    shape = (self.stride, self.padding, self.dilation, self.groups)
    lent = (self._instep_lent.anchor, loan.narrow, narrow, loan.slot, slot)
    made: Tensor = Convolution.apply(input.to(like), loan.parameter, bias, *lent, *shape)
    return made if later is None else made + later.to(like).view(-1, *[1] * (input.dim() - 2))


def _bias_of(layer: Any) -> tuple[Tensor | None, Tensor | None, int, Tensor | None]:
    """Return the bias as it is used: with its copy and its slot, or as it is, to be added later."""
    loan = layer._instep_lent.bias  # noqa: SLF001 -- ours
    bias = layer.bias
    if bias is None:
        return None, None, NOWHERE, None
    if loan is None or not _holds(loan, layer, bias) or not bias.requires_grad:
        return None, None, NOWHERE, bias
    return bias, loan.narrow, loan.slot, None


def _embedding(self: Any, input: Tensor) -> Tensor:  # noqa: A002
    loan = self._instep_lent.weight
    if (
        loan is None
        or not _holds(loan, self, self.weight)
        or not torch.is_grad_enabled()
        or not loan.parameter.requires_grad
        or not _is_plain_embedding(self)
    ):
        plain: Tensor = type(self).forward(self, input)
        return plain
    padding = -1 if self.padding_idx is None else self.padding_idx
    lent = (self._instep_lent.anchor, padding, loan.slot)
    made: Tensor = Embedding.apply(input, loan.parameter, *lent)
    return made


def _holds(loan: Loan, layer: Any, parameter: Tensor) -> bool:
    """Whether a loan is still of this layer: same parameter, unchanged, same class, plain tensors.

    `functional_call`, parametrizations and pruning put something else in a parameter's place.
    """
    if parameter is not loan.parameter or type(layer) is not layer._instep_lent.kind:  # noqa: SLF001
        return False
    if torch.compiler.is_compiling():
        return True
    return (
        loan.version == parameter._version  # noqa: SLF001 -- torch's own counter
        and not _are_transforms_active()
        and forward_ad._current_level < 0  # noqa: SLF001 -- as torch asks
    )


def _applies(x: Tensor, weight: Tensor) -> bool:
    kind = x.device.type
    return (
        torch.is_grad_enabled()
        and weight.requires_grad
        and torch.is_autocast_enabled(kind)
        and torch.get_autocast_dtype(kind) is torch.bfloat16
        and x.is_floating_point()
    )
