"""DeepSpeed's engine: it divides the loss, and every n-th step is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import accelerate, backward, models, optimizers
from instep.check.execute.things import Accelerator, Loader, Net, Optimizer
from instep.check.execute.values import DictValue, Unknown, unify

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value

KIND = "deepspeed"
_NET, _OPTIMIZER = "module", "optimizer"
"""The attributes under which an engine holds what it was made of."""


def initialize(m: Machine, call: Call) -> Value:
    """Follow `deepspeed.initialize`: an engine that counts for itself, and what comes with it."""
    m.managed = KIND
    net = unify(call.kwargs.get("model", call.args[1] if len(call.args) > 1 else None))
    config = call.kwargs.get("config", call.kwargs.get("config_params"))
    steps = None
    if isinstance(config, DictValue):
        steps = config.items.get("gradient_accumulation_steps")
    at = id(call.node)
    engine: Value = Unknown(f"{at}:engine", "model_engine")
    if steps is not None:
        net = net if isinstance(net, Net) else Net("model")
        engine = Accelerator(None, KIND, steps)
        engine.attrs[_NET] = net
        engine.attrs[_OPTIMIZER] = Optimizer("engine", frozenset({net}))
    state, rate = (Unknown(f"{at}:{name}", f"engine_{name}") for name in ("state", "rate"))
    return (engine, state, Loader("loader"), rate)


def method(m: Machine, value: Accelerator, call: Call) -> Value:
    """Call a method of the engine."""
    net, name = value.attrs[_NET], call.name
    if name == "step":
        _step(m, value, call)
        return None
    if name == "backward" and call.args:
        return backward.through(m, call, value.steps)
    if name in {"__call__", "forward", "train", "eval", "parameters", "named_parameters"}:
        return models.method(m, net, call)
    return call.unknown(m)


def _step(m: Machine, value: Accelerator, call: Call) -> None:
    value.micro += 1
    every = accelerate.count_of(value)
    if isinstance(every, int) and every > 1:
        m.hang(every)
    if not isinstance(every, int) or value.micro % max(every, 1) == 0:
        optimizer = value.attrs[_OPTIMIZER]
        optimizers.step(m, optimizer, call)
        call.note(m, "zero", set_to_none=True, optimizer=optimizer)
