"""The gradients of one optimizer: measured, multiplied, cast and cleared, whatever their layout.

Nothing here decides anything; `arithmetic` does. Dense gradients go through torch's foreach
kernels, sparse ones (from `nn.Embedding(sparse=True)`) one at a time.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

# torch documents its foreach functions, and names them with an underscore while they are in beta.
foreach_norm = torch._foreach_norm  # noqa: SLF001
foreach_mul_ = torch._foreach_mul_
foreach_clamp_max_ = torch._foreach_clamp_max_
foreach_clamp_min_ = torch._foreach_clamp_min_

_NARROW = (torch.float16, torch.bfloat16)


def parameters_of(optimizers: Iterable[torch.optim.Optimizer]) -> list[Tensor]:
    """Return every parameter the optimizers hold now; groups may be added while training."""
    return [
        p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]
    ]


def with_gradients(parameters: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters that have a gradient, and those gradients."""
    holders, gradients = [], []
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None:
            holders.append(parameter)
            gradients.append(gradient)
    return holders, gradients


def clear(parameters: Iterable[Tensor]) -> None:
    """Set every gradient to None: the next backward writes instead of adding to zeros."""
    for parameter in parameters:
        parameter.grad = None


def assign(parameters: Iterable[Tensor], gradients: Sequence[Tensor | None]) -> None:
    """Set every `.grad`; parameters that joined their optimizer later than `gradients` get None."""
    for parameter, gradient in zip_longest(parameters, gradients):
        parameter.grad = gradient


def coalesce(parameters: Iterable[Tensor]) -> None:
    """Add up the repeated rows of sparse gradients, so that norms and clamps see each row once."""
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None and gradient.is_sparse and not gradient.is_coalesced():
            parameter.grad = gradient.coalesce()


def dense_values(gradients: Iterable[Tensor]) -> list[Tensor]:
    """Return the stored elements of each gradient: all of a dense one, the rows of a sparse one."""
    return [g._values() if g.is_sparse else g for g in gradients]  # noqa: SLF001 -- values() copies


def norms(gradients: Sequence[Tensor], *, order: float = 2.0, exact: bool = False) -> list[Tensor]:
    """Return one norm per gradient, on its device; narrow types are summed in float32.

    `exact` sums in float64, for finite gradients whose squares overflow.
    """
    wide: list[Tensor] = []
    narrow: list[Tensor] = []
    for values in dense_values(gradients):
        if values.numel():
            (narrow if values.dtype in _NARROW else wide).append(values)
    dtype = torch.float64 if exact else None
    found = list(foreach_norm(wide, order, dtype=dtype)) if wide else []
    if narrow:
        found.extend(foreach_norm(narrow, order, dtype=dtype or torch.float32))
    return found


def folded(pieces: Sequence[Tensor]) -> list[Tensor]:
    """Fold the norms on each device into one there; those on the host are numbers already."""
    if all(piece.is_cpu for piece in pieces):
        return list(pieces)
    by_device: dict[torch.device, list[Tensor]] = {}
    for piece in pieces:
        by_device.setdefault(piece.device, []).append(piece)
    return [torch.linalg.vector_norm(torch.stack(group)) for group in by_device.values()]


def exact_norm(gradients: Sequence[Tensor]) -> float:
    """Return the norm where the fast one overflowed: not finite only if a gradient is (syncs)."""
    largest = [float(piece) for piece in norms(gradients, order=math.inf)]
    if not all(map(math.isfinite, largest)):
        return math.nan
    return math.hypot(*(float(piece) for piece in norms(gradients, exact=True)))


def multiply(gradients: Sequence[Tensor], factor: float) -> None:
    """Multiply every gradient by one number, in place."""
    if factor != 1.0 and gradients:
        foreach_mul_(dense_values(gradients), factor)


def clamp(gradients: Sequence[Tensor], limit: float) -> None:
    """Clamp every element to [-limit, limit], in place."""
    if gradients:
        values = dense_values(gradients)
        foreach_clamp_max_(values, limit)
        foreach_clamp_min_(values, -limit)


def to_host(scalars: Sequence[Tensor]) -> list[float]:
    """Read many 0-dim tensors, one transfer per device and type: the close's one device sync."""
    if all(scalar.is_cpu for scalar in scalars):
        return [float(scalar.item()) for scalar in scalars]
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, scalar in enumerate(scalars):
        groups.setdefault((scalar.device, scalar.dtype), []).append(index)
    numbers = [0.0] * len(scalars)
    for indices in groups.values():
        for index, number in zip(
            indices, torch.stack([scalars[i] for i in indices]).tolist(), strict=True
        ):
            numbers[index] = float(number)
    return numbers


def widen(parameters: Iterable[Tensor], dtype: torch.dtype | None) -> list[Tensor]:
    """Let gradients of narrower parameters accumulate in `dtype`; return those parameters."""
    if dtype is None:
        return []
    narrower = [p for p in parameters if p.dtype.is_floating_point and p.itemsize < dtype.itemsize]
    for parameter in narrower:
        parameter.grad_dtype = dtype
    return narrower


def narrow(parameters: Iterable[Tensor]) -> None:
    """Give widened parameters gradients of their own type again, which their optimizer expects.

    They are left with no demanded type rather than with their own, which would stay behind and
    round gradients if the model is converted to a wider type later.
    """
    for parameter in parameters:
        gradient = parameter.grad
        parameter.grad = None
        parameter.grad_dtype = None
        if gradient is not None:
            parameter.grad = gradient.to(parameter.dtype)
