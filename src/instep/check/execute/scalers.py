"""Loss scalers that do everything in one call, and apex's contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import backward, tensors
from instep.check.execute.roles import SCALER
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Optimizer
from instep.check.execute.values import Context, Gate, unify

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value


def is_all_in_one(short: str, call: Call) -> bool:
    """Say whether a call is `loss_scaler(loss, optimizer, ...)`: backward, clip and step in one."""
    return short in SCALER and _optimizer(call) is not None


def _optimizer(call: Call) -> Optimizer | None:
    return next((v for v in map(unify, call.inputs) if isinstance(v, Optimizer)), None)


def all_in_one(m: Machine, call: Call) -> Value:
    """Follow `loss_scaler(loss, optimizer, clip_grad=..., need_update=...)`, as timm has it."""
    tensor = tensors.as_tensor(m, call.args[0], call.node) if call.args else None
    optimizer = _optimizer(call)
    if tensor is None or optimizer is None:
        call.note(m, "opaque", what="loss_scaler", values=None)
        return None
    backward.record(m, tensor, call)
    update = call.kwargs.get("need_update", call.kwargs.get("update_grad", True))
    gate, holds = m.gate(), update
    if isinstance(update, Gate):
        gate, holds = (update.every, update.written), update.holds
        for loop in m.loops:
            loop.moduli.add(update.every)
    if holds is not False:
        call.note(m, "step", optimizer=optimizer, scaler=None, closure=False, gate=gate)
        if not isinstance(holds, bool):
            call.note(m, "opaque", what="loss_scaler", values=[optimizer])
    return call.unknown(m)


def scale_loss(m: Machine, call: Call) -> Value:
    """Follow apex's context: the scale is put on when it is entered and taken off when left."""
    tensor = tensors.as_tensor(m, call.args[0], call.node) if call.args else None
    return Context(lambda: tensor if isinstance(tensor, Tensor) else call.unknown(m))


def initialize(m: Machine, call: Call) -> Value:
    """Follow apex's `amp.initialize`: it gives back the same objects."""
    if len(call.args) > 1:
        return tuple(call.args[:2])
    return call.args[0] if call.args else call.unknown(m)
