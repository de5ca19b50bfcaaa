"""Optimizers, gradient scalers and schedulers: what their methods do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import functions, loss_scale, opaque, tensor_methods, tensors
from instep.check.execute.arguments import Call
from instep.check.execute.definitions import Function, Instance
from instep.check.execute.things import Optimizer, Scaler
from instep.check.execute.values import Unknown, unify

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.things import Accelerator, Scheduler
    from instep.check.execute.values import Value


_CLEARS = frozenset({"zero_grad", "clear_grad", "clear_gradients", "reset_grad", "zero_gradients"})


def method(m: Machine, value: Optimizer, call: Call) -> Value:
    """Call a method of an optimizer."""
    name = call.name
    if name in _CLEARS:
        if _acts(value.accelerator or m.accumulating):
            zero(m, call, optimizer=value)
        return None
    if name == "step":
        return _step(m, value, call)
    if name == "add_param_group":
        held = tensors.parameters_of(call.args[0]) if call.args else None
        value.nets = None if held is None or value.nets is None else value.nets | held
        call.note(m, "grouped", optimizer=value)
        return None
    if "backward" in name and call.args:
        opaque.watch(m, name, call, call.inputs)
        return opaque.managed(m, str(value.known_as), call)
    if name in {"prepare", "to", "cuda"}:
        return value
    if name.startswith(("step", "register_step")):
        call.note(m, "opaque", what=name, values=[value])
    return call.unknown(m)


def _acts(accelerator: Accelerator | None) -> bool:
    """Say whether calls reach an optimizer: inside a window Accelerate swallows them."""
    return accelerator is None or accelerator.syncs


def _step(m: Machine, value: Optimizer, call: Call) -> Value:
    closure = call.get(0, "closure")
    is_context = call.args and isinstance(unify(closure), Unknown)
    if is_context and "ctx" in call.scope.module.spelled(call.node):
        m.managed = "dist_autograd"
        return None
    if not _acts(value.accelerator or m.accumulating):
        return None
    return step(m, value, call, closure=closure)


def zero(m: Machine, call: Call, **target: Value) -> None:
    """Clear gradients."""
    chosen = call.get(0, "set_to_none", default=True)
    none = chosen if isinstance(chosen, bool) else None
    call.note(m, "zero", set_to_none=none, **target)


def step(
    m: Machine,
    value: Optimizer,
    call: Call,
    *,
    closure: Value = None,
    through: Scaler | None = None,
) -> Value:
    """Update, after a closure if there is one."""
    result: Value = call.unknown(m)
    if isinstance(closure, Unknown) and closure.made is None:
        call.note(m, "opaque", what="closure", values=[value])
    elif isinstance(closure, Function):
        returned = functions.invoke(m, closure, Call(call.node, call.scope))
        result = returned if value.torch else result  # others return a number, perhaps
    if value.is_own or "step" in value.attrs:
        call.note(m, "opaque", what=f"{value.known_as}.step", values=[value])
    closed = closure is not None
    call.note(m, "step", optimizer=value, scaler=through, closure=closed, gate=m.gate())
    return result


def of_function(m: Machine, call: Call) -> Value:
    """Follow `xm.optimizer_step(optimizer)`."""
    target = optimizer_of(call.args[0]) if call.args else None
    return step(m, target, call) if target is not None else None


def optimizer_of(value: Value) -> Optimizer | None:
    """Return the optimizer that a value is, wraps, or must be."""
    if isinstance(value, Unknown) and value.made is None:
        value.made = Optimizer(value.known_as)
    value = unify(value)
    if isinstance(value, Optimizer):
        return value
    inner = map(unify, value.attrs.values()) if isinstance(value, Instance) else ()
    return next((found for found in inner if isinstance(found, Optimizer)), None)


def scaler(_m: Machine, call: Call) -> Value:
    """Follow `GradScaler(...)`."""
    enabled = call.kwargs.get("enabled", True)
    made = Scaler(None, enabled=enabled if isinstance(enabled, bool) else None)
    made.node, made.module = call.node, call.scope.module
    return made


def of_scaler(m: Machine, value: Scaler, call: Call) -> Value:
    """Call a method of a scaler."""
    name = call.name
    if name == "scale" and call.args:
        return tensor_methods.scale(m, call.args[0], value, call)
    if name == "update":
        call.note(m, "scaler-update", scaler=value)
        return None
    target = call.get(0, "optimizer")
    if name in {"step", "unscale_"} and target is not None:
        return _through(m, value, target, call)
    if name == "is_enabled":
        value.asked = True
        if value.enabled is not None:
            return value.enabled
    if name == "get_scale":
        return loss_scale.asked(m, value, call)
    return call.unknown(m, "enabled" if name == "is_enabled" else "")


def _through(m: Machine, value: Scaler, given: Value, call: Call) -> Value:
    target = optimizer_of(given)
    if target is None:
        call.note(m, "opaque", what=f"{value.known_as}.{call.name}", values=None)
    elif call.name == "unscale_":
        call.note(m, "unscale", optimizer=target, scaler=value)
    elif _acts(target.accelerator):
        return step(m, target, call, through=value)
    return None


def of_scheduler(m: Machine, value: Scheduler, call: Call) -> Value:
    """Call a method of a scheduler."""
    if call.name == "load_state_dict":
        value.skippable = True  # it goes on: its first value was used by whoever has saved it
    if call.name not in {"step", "step_update"}:
        return call.unknown(m)
    if _acts(value.accelerator or m.accumulating):
        # `step_update` is timm's: it is told the number of updates.
        told = bool(call.args or call.kwargs) or call.name == "step_update"
        call.note(m, "schedule", scheduler=value, explicit=told)
    return None
