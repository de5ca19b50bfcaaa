"""A stepper's parameters and buffers in float64, for a while."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from instep.engine import gradients as grads
from instep.engine import rng
from instep.errors import LossError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from instep.engine.stepper import Stepper


def double(value: Any) -> Any:
    """Return a tensor in double precision; what is no number with a fraction stays."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def places_of(models: Sequence[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """Yield each model with what the names of its parts begin with: nothing, if it is alone."""
    for index, model in enumerate(models):
        yield f"models[{index}]." if len(models) > 1 else "", model


@contextlib.contextmanager
def float64(stepper: Stepper) -> Iterator[dict[str, Tensor]]:
    """Lend the parameters and buffers in float64, dropout off; put everything back after."""
    random = rng.full_state()
    owned = {id(p): p for os in stepper.optimizers.values() for p in grads.parameters_of(os)}
    modules = [module for model in stepper.models for module in model.modules()]
    if any(is_lazy(p) for p in owned.values()):
        raise LossError(
            "the model has parameters without a shape.",
            why="lazy modules get theirs at their first forward, which must not be a probe.",
            fix="run one forward first.",
            more="verify",
        )
    names = {
        id(p): f"{place}{name}"
        for place, model in places_of(stepper.models)
        for name, p in model.named_parameters()
    }
    named = {
        names.get(key, f"parameter {index}"): parameter
        for index, (key, parameter) in enumerate(owned.items())
        if parameter.requires_grad
    }
    places = [(m, n, b) for m in modules for n, b in m.named_buffers(recurse=False)]
    buffers = [buffer for _, _, buffer in places]
    held = [p for model in stepper.models for p in model.parameters()] + list(owned.values())
    tensors = list({id(t): t for t in [*held, *buffers]}.values())
    saved = [(t, t.data, t.grad) for t in tensors]
    dropouts = [m for m in modules if isinstance(m, _DropoutNd) and m.training]
    try:
        for tensor in tensors:
            tensor.grad = None
            tensor.data = double(tensor.data).clone()
            _follow_dtype(tensor)
        for module in dropouts:
            module.training = False
        yield named
    finally:
        for tensor, data, gradient in saved:
            tensor.grad = None
            tensor.data = data
            _follow_dtype(tensor)
            tensor.grad = gradient
        for owner, name, buffer in places:
            if getattr(owner, name) is not buffer:
                setattr(owner, name, buffer)
        for module in dropouts:
            module.training = True
        rng.restore(random)


def _follow_dtype(tensor: Tensor) -> None:
    # A gradient type that was demanded for the old type would round or refuse gradients of the new.
    if tensor.requires_grad and tensor.is_leaf and tensor.grad_dtype != tensor.dtype:
        tensor.grad_dtype = None
