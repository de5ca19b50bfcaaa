"""One backward, with the least between it and torch's engine.

`torch.autograd.backward` first validates and completes its gradient arguments in Python, which
costs about as much as a small layer's backward. Ours are made right (same shape, type and device as
their loss), so plain tensors go to the function behind it. Tensor subclasses, function transforms
and a torch without that function take the public way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from instep.errors import LossError

if TYPE_CHECKING:
    from collections.abc import Sequence

_engine = getattr(torch.autograd.graph, "_engine_run_backward", None)
_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)  # noqa: SLF001


def backward(
    losses: Sequence[Tensor],
    seeds: Sequence[Tensor],
    *,
    retain_graph: bool,
    inputs: Sequence[Tensor] | None,
) -> None:
    """Add the gradient of Σ seed · loss into `.grad`: of `inputs`, or of every leaf if None."""
    is_plain = type(losses[0]) is Tensor and (
        len(losses) == 1 or all(type(loss) is Tensor for loss in losses)
    )
    if _engine is None or not is_plain or _transforms_active():
        torch.autograd.backward(losses, seeds, retain_graph, inputs=inputs)
        return
    _engine(
        tuple(losses),
        tuple(seeds),
        retain_graph,
        False,  # noqa: FBT003 -- create_graph: the engine takes it by position
        () if inputs is None else tuple(inputs),
        allow_unreachable=True,
        accumulate_grad=True,
    )


def refuse_reentrant(loss: Tensor) -> None:
    """Raise if the graph holds a reentrant checkpoint, which a limited backward would pass by.

    torch runs such a node only for gradients of its inputs; the parameters inside it would silently
    get none. Looked for once per optimizer: the walk costs as much as a small backward.
    """
    if has_reentrant([loss]):
        raise LossError(
            "the model uses reentrant activation checkpoints, with several optimizers.",
            why="each backward is limited to its own optimizer's parameters, and a reentrant "
            "checkpoint leaves out those inside it then.",
            fix="pass use_reentrant=False to torch.utils.checkpoint.checkpoint.",
            more="several-optimizers",
        )


def has_reentrant(outputs: Sequence[Tensor]) -> bool:
    """Whether there is a reentrant checkpoint in the graph behind these tensors."""
    waiting, seen = [output.grad_fn for output in outputs], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name() == "CheckpointFunctionBackward":
            return True
        waiting.extend(following for following, _ in node.next_functions)
    return False
