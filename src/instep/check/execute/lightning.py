"""Lightning's manual optimization: the module itself is asked for its optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import attributes, backward, functions, optimizers, tensors
from instep.check.execute.arguments import Call
from instep.check.execute.definitions import Function
from instep.check.execute.levels import goes_down
from instep.check.execute.things import Optimizer, Scheduler
from instep.check.execute.values import CONFIGURED, ListValue, Unknown, unify

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.things import Net
    from instep.check.execute.values import Value

METHODS = frozenset(
    {"manual_backward", "optimizers", "lr_schedulers", "clip_gradients", "toggle_optimizer",
     "untoggle_optimizer", "log", "log_dict"}
)  # fmt: skip
"""Methods that a LightningModule has without its class saying so."""


def method(m: Machine, value: Net, call: Call) -> Value:
    """Follow manual optimization."""
    name = call.name
    if name == "manual_backward" and call.args:
        return backward.through(m, call)
    if name == "optimizers":
        return _configured(m, value, call, Optimizer)
    if name == "lr_schedulers":
        return _configured(m, value, call, Scheduler)
    if name == "clip_gradients":
        optimizer = optimizers.optimizer_of(call.args[0]) if call.args else None
        nets = optimizer.nets if optimizer is not None else None
        call.note(m, "clip", nets=nets, optimizer=optimizer, by="norm", limit=None)
    return None


def _configured(m: Machine, value: Net, call: Call, role: type[Optimizer | Scheduler]) -> Value:
    made = value.attrs.get(CONFIGURED)
    if made is None:
        function = attributes.find_member(value, "configure_optimizers")
        if isinstance(function, Function):
            bound = functions.bound_to(function, value)
            made = functions.invoke(m, bound, Call(call.node, call.scope))
        value.attrs[CONFIGURED] = made if made is not None else ListValue([])
    found = list(dict.fromkeys(_of_role(made, role)))
    if not found:
        word = "optimizer" if role is Optimizer else "scheduler"
        return Unknown(f"{id(value)}.{word}", word)
    return found[0] if len(found) == 1 else tuple(found)


@goes_down
def _of_role(value: Value, role: type) -> list[Value]:
    value = unify(value)
    if isinstance(value, role):
        return [value]
    return [found for item in tensors.inside(value) for found in _of_role(item, role)]
