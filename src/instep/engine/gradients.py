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
foreach_copy_ = torch._foreach_copy_
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


def unshare(parameters: Sequence[Tensor]) -> int:
    """Give every gradient memory of its own; return how many there are.

    Autograd may hand one tensor, or overlapping parts of one, to several parameters
    (`a.view(2, 3) + b.view(2, 3)`); what is then added to one of them, or multiplied, reaches both.
    """
    held: list[tuple[int, int, int]] = []
    found = 0
    for index, parameter in enumerate(parameters):
        gradient = parameter.grad
        if gradient is None:
            continue
        found += 1
        if gradient.is_sparse or not gradient.numel():
            continue
        first = gradient.data_ptr()
        held.append((first, first + _extent(gradient) * gradient.itemsize, index))
    held.sort()
    reached = 0
    for first, end, index in held:
        gradient = parameters[index].grad
        if first < reached and gradient is not None:
            parameters[index].grad = gradient.clone()
        else:
            reached = end
    return found


def _extent(tensor: Tensor) -> int:
    """Return how many elements lie between the first and the last of a tensor in memory."""
    if tensor.is_contiguous():
        return tensor.numel()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


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


def narrower(parameters: Iterable[Tensor], dtype: torch.dtype | None) -> list[Tensor]:
    """Return the parameters whose own type is narrower than the one to sum in."""
    if dtype is None:
        return []
    return [p for p in parameters if p.dtype.is_floating_point and p.itemsize < dtype.itemsize]


def demand(parameters: Iterable[Tensor], dtype: torch.dtype | None) -> None:
    """Let autograd make gradients of this type; None lets it make whatever comes.

    A type is demanded only while a backward of ours runs: `torch.autograd.grad` would follow it,
    too, and a model converted to a wider type later would have its gradients rounded.
    """
    for parameter in parameters:
        parameter.grad_dtype = dtype


def narrow(parameters: Iterable[Tensor]) -> None:
    """Give gradients the type of their parameter, which optimizers expect."""
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None and gradient.dtype is not parameter.dtype:
            parameter.grad = None
            parameter.grad = gradient.to(parameter.dtype)
