"""The gradients of one optimizer: measured, multiplied, cast and cleared, whatever their layout.

Nothing here decides anything; `arithmetic` does. Dense gradients go through torch's foreach
kernels, sparse ones (from `nn.Embedding(sparse=True)`) one at a time.
"""

from __future__ import annotations

import math
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


def assign(parameters: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> None:
    """Set every `.grad`."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def unshare(parameters: Iterable[Tensor]) -> None:
    """Give every gradient memory of its own.

    Autograd may hand one tensor to two parameters (`a.view(2, 3) + b.view(2, 3)`), and what is then
    added to one of them, or multiplied, reaches both.
    """
    seen: set[int] = set()
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None or gradient.is_sparse or not gradient.numel():
            continue
        address = gradient.data_ptr()
        if address in seen:
            parameter.grad = gradient.clone()
        else:
            seen.add(address)


def coalesce(parameters: Iterable[Tensor]) -> None:
    """Add up the repeated rows of sparse gradients, so that norms and clamps see each row once."""
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None and gradient.is_sparse and not gradient.is_coalesced():
            parameter.grad = gradient.coalesce()


def dense_values(gradients: Iterable[Tensor]) -> list[Tensor]:
    """Return the stored elements of each gradient: all of a dense one, the rows of a sparse one."""
    return [g._values() if g.is_sparse else g for g in gradients]  # noqa: SLF001 -- values() copies


def norms(gradients: Sequence[Tensor], *, order: float = 2.0) -> list[Tensor]:
    """Return one norm per gradient, on its device; narrow types are summed in float32."""
    wide: list[Tensor] = []
    narrow: list[Tensor] = []
    for values in dense_values(gradients):
        if values.numel():
            (narrow if values.dtype in _NARROW else wide).append(values)
    found = list(foreach_norm(wide, order)) if wide else []
    if narrow:
        found.extend(foreach_norm(narrow, order, dtype=torch.float32))
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
    largest = largest_element(gradients)
    if not math.isfinite(largest):
        return math.nan
    # Divided by the largest first, so that squares stay in range; complex values keep their type.
    pieces = (values.abs().double() / largest for values in dense_values(gradients))
    return largest * math.hypot(*(piece.norm().item() for piece in pieces))


def largest_element(gradients: Sequence[Tensor]) -> float:
    """Return the largest absolute value of any element; NaN if one is NaN (syncs)."""
    found = to_host(norms(gradients, order=math.inf))
    return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)


def largest_allowed(parameters: Iterable[Tensor]) -> float:
    """Return the largest number that every one of these parameters' types can hold."""
    return min(
        (torch.finfo(dtype).max for dtype in {p.dtype for p in parameters}), default=math.inf
    )


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
