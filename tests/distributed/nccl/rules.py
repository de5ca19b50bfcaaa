"""What ProcessGroupNCCL refuses, or would do something else with than gloo, of one call.

Read from its source: types from NCCLUtils.hpp of torch 2.13, the rest from a ProcessGroupNCCL.cpp
of about that time. Where NCCL says nothing and hangs, or sends what is between the elements of a
tensor, there is a rule here all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

TYPES = {
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
    torch.float8_e5m2fnuz,
    torch.float8_e4m3fnuz,
}
"""Types that NCCL has a name for."""
ONLY_SENT = {torch.float8_e5m2fnuz, torch.float8_e4m3fnuz}
"""Types that it moves as bytes, and cannot add."""
SEEN_AS_REAL = {"allreduce", "broadcast", "reduce"}
"""Calls in which a complex tensor is taken for twice as many numbers."""
OPERATIONS = {"SUM", "AVG", "MIN", "MAX", "PRODUCT", "PREMUL_SUM"}
LINEAR = {"SUM", "AVG"}


class RuleError(RuntimeError):
    """A collective that NCCL would refuse, or hang in."""


def operation_of(reduce_op: Any) -> str:
    """Return the name of an operation, which torch has in two types."""
    return next(name for name, each in ReduceOp.RedOpType.__members__.items() if reduce_op == each)


def require(call: str, tensors: Sequence[Tensor], operation: str = "") -> None:
    """Raise if NCCL would not take these tensors, all of one call on one rank."""
    if not tensors:
        raise RuleError(f"{call}: no tensors")
    for tensor in tensors:
        _require_tensor(call, tensor)
        _require_type(call, tensor.dtype, operation)
    if len({tensor.device for tensor in tensors}) > 1:
        raise RuleError(f"{call}: tensors on several devices")
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise RuleError(f"{call}: tensors of several types")


def _require_tensor(call: str, tensor: Tensor) -> None:
    if tensor.layout is not torch.strided:
        raise RuleError(f"{call}: a sparse tensor")
    if not is_dense(tensor):
        raise RuleError(f"{call}: a tensor that is not contiguous, strides {tensor.stride()}")


def is_dense(tensor: Tensor) -> bool:
    """Whether its elements lie one after the other, in the order of one of torch's formats."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    other = formats.get(tensor.ndim)
    return tensor.is_contiguous() or (
        other is not None and tensor.is_contiguous(memory_format=other)
    )


def _require_type(call: str, dtype: torch.dtype, operation: str) -> None:
    if dtype.is_complex:
        if call not in SEEN_AS_REAL:
            raise RuleError(f"{call}: NCCL has no {dtype}")
        if operation and operation not in LINEAR:
            raise RuleError(f"{call}: {operation} of complex numbers")
    elif dtype not in TYPES:
        raise RuleError(f"{call}: NCCL has no {dtype}")
    if not operation:
        return
    if operation not in OPERATIONS:
        raise RuleError(f"{call}: NCCL has no {operation}")
    if operation == "PREMUL_SUM" and not dtype.is_floating_point:
        raise RuleError(f"{call}: a premultiplied sum of {dtype}")
    if dtype in ONLY_SENT:
        raise RuleError(f"{call}: NCCL cannot add {dtype}")
    if dtype is torch.bool and operation == "AVG":
        raise RuleError(f"{call}: a mean of truth values")


def require_thread(known: int) -> None:
    """Raise if a group is used by another thread than the one that made it."""
    if threading.get_ident() != known:
        raise RuleError("a group is used by two threads, whose order is left to chance")


def require_parts(call: str, whole: Tensor, part: Tensor, world: int) -> None:
    """Raise unless one tensor is as long as those of all ranks."""
    if whole.numel() != part.numel() * world:
        raise RuleError(f"{call}: {whole.numel()} elements for {world} times {part.numel()}")


def require_equal(call: str, parts: Sequence[Tensor], own: Tensor, world: int) -> None:
    """Raise unless there is a tensor for every rank, each of the size of this rank's own.

    Of uneven lists torch makes a broadcast for each rank; nothing here is to rely on it.
    """
    if len(parts) != world:
        raise RuleError(f"{call}: {len(parts)} tensors for {world} ranks")
    sizes = [part.numel() for part in parts]
    if any(size != own.numel() for size in sizes):
        raise RuleError(f"{call}: sizes {sizes} beside {own.numel()} of this rank's own")
