"""Backward: gradients are added, by a loss or by whoever calls it for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import tensors

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.tensors import Tensor
    from instep.check.execute.values import Value


def of_tensor(m: Machine, tensor: Tensor, call: Call) -> None:
    """Follow `loss.backward(...)`."""
    tensor = weighted(m, tensor, call.get(0, "gradient"), call)
    record(m, tensor, call, limited="inputs" in call.kwargs)


def weighted(m: Machine, tensor: Tensor, weight: Value, call: Call) -> Tensor:
    """Return a loss as it is when it is multiplied by a gradient that came from elsewhere."""
    if weight is None:
        return tensor
    made = tensors.copy(m, tensor, call.node)
    made.parts = None
    return made


def through(m: Machine, call: Call, part: Value = None) -> Value:
    """Follow `accelerator.backward(loss)`; `part` is what it divides the loss by."""
    tensor = tensors.as_tensor(m, call.args[0], call.node) if call.args else None
    if tensor is not None:
        record(m, tensor, call, part=part)
    return None


def record(
    m: Machine, tensor: Tensor, call: Call, *, part: Value = None, limited: bool = False
) -> None:
    """Add gradients."""
    m.backed.add(tensor.ident)
    m.backed.update(tensor.chain)
    m.summed.update(tensor.sums)
    call.note(
        m, "backward", tensor=tensor, part=part, limited=limited, call=call.node,
        things=tuple(m.things),
    )  # fmt: skip
