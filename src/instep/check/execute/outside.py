"""What is outside the project, by its full name: torch, its friends, and what only has a name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from instep.check.execute import constructors, losses, opaque, steppers
from instep.check.execute.roles import Names
from instep.check.execute.things import Net, Stepper
from instep.check.execute.values import ARRAY, Unknown, unify

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value

CALLS: dict[str, Callable[[Machine, Call], Value]] = {}
"""What follows a function or class, by the last part of its full name. Filled by `tables`."""
_OLD_AMP = frozenset(
    f"torch.cuda.amp.{name}" for name in ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
)
_LOSSES = Names(r"(loss|cross_entropy|nll|l1|mse|kl_div|huber)", re.IGNORECASE)


def call(m: Machine, path: str, call: Call) -> Value:
    """Call something that is not the project's."""
    made = _made(m, path, call)
    if path.startswith("numpy.") and isinstance(made, Unknown):
        made.attrs[ARRAY] = True
    return made


def _made(m: Machine, path: str, call: Call) -> Value:
    if path in _OLD_AMP:
        call.note(m, "called", api=path)
    first = unify(call.first)
    if path == "torch.nn.Module.train" and isinstance(first, Net):
        first.forget_mode()
    if path == steppers.PATH:
        return Stepper(None)
    name = call.name = path.rpartition(".")[2]
    handler = CALLS.get(name)
    if handler is not None:
        return handler(m, call)
    role = constructors.role_of(path)
    made = None if role is None else constructors.by_role(role, path, call)
    if made is not None:
        made.node, made.module = call.node, call.scope.module
        call.note(m, "made", thing=made)
        return made
    if path.startswith("torch.nn.functional.") and name in _LOSSES:
        return losses.computed(m, call.node, losses.criterion(name, call.kwargs), call.inputs)
    net = constructors.network(path, call)
    if net is not None:
        net.module = call.scope.module
    return net if net is not None else opaque.unknown_call(m, path, call)
