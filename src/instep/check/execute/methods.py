"""Methods of things that are not the project's, and calls of the things themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.check.execute import becoming, grads, hooks, lightning, losses, models, opaque, scalers
from instep.check.execute.things import Accelerator, Criterion, Net, Param, Parameters, Scaler
from instep.check.execute.values import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.arguments import Call
    from instep.check.execute.definitions import Super
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Thing, Value

    Handler = Callable[[Machine, Any, Call], Value]

METHODS: dict[type[Thing], Handler] = {}
"""What follows the methods of a kind of thing. Filled by `tables`."""


def method(m: Machine, receiver: Value, call: Call) -> Value:
    """Call a method of something that is not the project's."""
    if type(receiver) is Unknown:
        known = receiver.made or becoming.become(m, receiver, call)
        if known is None:
            hooks.unknown(m, call.name, call)
            return becoming.method(m, receiver, call)
        receiver = known
    handler = METHODS.get(type(receiver))
    if handler is None:
        return opaque.unknown_call(m, call.name, call, [receiver, *call.inputs])
    return handler(m, receiver, call)


def call_criterion(m: Machine, value: Criterion, call: Call) -> Value:
    """Call a loss function."""
    return losses.computed(m, call.node, value, call.inputs)


def call_accelerator(m: Machine, value: Accelerator, call: Call) -> Value:
    """Call Accelerate's or Fabric's object, or DeepSpeed's engine."""
    call.name = "__call__"
    call.args, call.kwargs = call.inputs, {}
    return method(m, value, call)


def call_scaler(m: Machine, _value: Scaler, call: Call) -> Value:
    """Call a scaler that goes backward and steps as well."""
    return scalers.all_in_one(m, call)


def of_criterion(m: Machine, value: Criterion, call: Call) -> Value:
    """Call a method of a loss function."""
    if call.name in {"to", "cuda", "cpu", "train", "eval"}:
        return value
    if call.name == "parameters":
        return Parameters(frozenset())
    if call.name == "backward":  # the class was called in the place of an object of it
        call.note(m, "opaque", what=f"{value.known_as}.backward", values=None)
        m.problem(f"`{value.known_as}` is a loss function, and goes backward like a loss", call)
        return call.unknown(m)
    return opaque.unknown_call(m, call.name, call, [value, *call.inputs])


def of_parameter(m: Machine, value: Param, call: Call) -> Value:
    """Call a method of a parameter."""
    if "hook" in call.name:
        call.note(m, "opaque", what=call.name, values=None)
        m.problem(f"`{call.name}` may change gradients", call)
        return call.unknown(m)
    if call.name in {"detach", "clone"}:
        return call.unknown(m)
    if call.name in {"requires_grad_", "detach_"}:
        return grads.freeze(m, value, call)
    if call.name in grads.MOVES and grads.is_moved(m, value):
        return value
    return opaque.unknown_call(m, call.name, call, [value, *call.inputs])


def of_super(m: Machine, value: Super, call: Call) -> Value:
    """Call a method of a base class that is not in the project."""
    inner, name = value.of, call.name
    if isinstance(inner, Net):
        if name in models.NET_METHODS:
            return models.method(m, inner, call)
        if name in lightning.METHODS:
            return lightning.method(m, inner, call)
    if name in {"step", "zero_grad", "backward", "train_step", "optimize"}:
        call.note(m, "opaque", what=f"super().{name}", values=None)
        m.problem(f"the base class of `{name}` is not in the project", call)
    return call.unknown(m)
