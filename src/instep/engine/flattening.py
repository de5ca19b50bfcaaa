"""Which parameters can lie in flat buffers and be updated by the kernel, and why others cannot."""

from __future__ import annotations

import importlib.util
import os
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from instep.engine import gradients as grads
from instep.errors import WindowError
from instep.fast.rules import rule_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

SHARED_MEMORY = "two parameters lie in the same memory"


def why_not_flat(models: Sequence[torch.nn.Module], optimizers: Sequence[Optimizer]) -> str | None:
    """Return why these optimizers cannot be updated by the kernel; None if they can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    # Triton's interpreter runs kernels on the host, to test their arithmetic.
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    for optimizer in optimizers:
        if rule_of(optimizer) is None:
            return f"the kernel does not know {type(optimizer).__name__} with these options"
    members = grads.parameters_of(optimizers)
    found = (_why_not(p, interpreted=interpreted) for p in members)
    reason = next((one for one in found if one is not None), None)
    if reason is None and share_memory(members):
        return SHARED_MEMORY
    sparse = [
        name for model in models for name, m in model.named_modules() if getattr(m, "sparse", False)
    ]
    return reason if reason or not sparse else f"`{sparse[0]}` has sparse gradients"


def why_not_now(optimizers: Sequence[Optimizer]) -> str | None:
    """Return why a window cannot be closed by the kernel though others were; None if it can."""
    for optimizer in optimizers:
        name = type(optimizer).__name__
        if rule_of(optimizer) is None:
            return f"the kernel does not know {name} with the options that it has now"
        hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)  # noqa: SLF001
        every = (hook for one in hooks for hook in one.values())
        if any(not _is_ours(hook) for hook in every):
            return f"a hook of {name}'s step may look at gradients"
    return None


def _is_ours(hook: object) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("instep.")


def share_memory(parameters: Iterable[Tensor]) -> bool:
    """Whether any two of these lie in the same memory, in part at least."""
    whole = {id(p): p for p in parameters if p.numel()}.values()
    places = sorted((p.device.index or 0, p.data_ptr(), p.data_ptr() + p.nbytes) for p in whole)
    return any(a[0] == b[0] and b[1] < a[2] for a, b in pairwise(places))


def refuse_shared_memory() -> None:
    """Raise for parameters that were tied by their memory after buffers had been laid out."""
    raise WindowError(
        f"{SHARED_MEMORY} since the last window.",
        why="with fused=True each has a place of its own in a flat buffer, and they would come "
        "apart.",
        fix="tie them as one object (b.weight = a.weight), before the Stepper is made.",
        more="fast",
    )


def _why_not(parameter: Tensor, *, interpreted: bool) -> str | None:
    if not parameter.dtype.is_floating_point:
        return f"a parameter is of type {parameter.dtype}"
    if not (parameter.is_cuda or (interpreted and parameter.is_cpu)):
        return f"a parameter is on {parameter.device}, and the kernel needs a CUDA device"
    if not torch.ops.aten.is_non_overlapping_and_dense(parameter):
        return "a parameter has holes or overlaps in memory"
    if parameter.is_cpu and parameter.is_shared():
        return "a parameter lies in memory that processes share"
    return None
