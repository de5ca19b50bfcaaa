"""Accelerate and Fabric: objects through which a loop goes instead of calling torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from instep.check.execute import backward, deepspeed, models, numbers, tensors
from instep.check.execute.arguments import REST
from instep.check.execute.roles import Names
from instep.check.execute.things import Accelerator, Net, Optimizer, Scheduler
from instep.check.execute.values import PREPARED, Context, Gate, Unknown, unify

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value

_NAME = Names(r"accelerat|^fabric$|_fabric$", re.IGNORECASE)
_DEEPSPEED = ("deepspeed_plugin", "deepspeed_plugins")


def is_accelerator(short: str, method: str) -> bool:
    """Say whether a name and the method called on it are those of Accelerate or Fabric."""
    return method not in {"step", "to", "cuda"} and short in _NAME


def kind_of(short: str) -> str:
    """Return which of the two it is.

    >>> kind_of("self.fabric")
    'fabric'
    """
    return "fabric" if "fabric" in short.lower() else "accelerate"


def accelerator(m: Machine, call: Call) -> Value:
    """Follow `Accelerator(...)`. Over DeepSpeed its engine counts, whatever the loop does."""
    if any(unify(call.kwargs.get(name)) is not None for name in _DEEPSPEED):
        m.managed = deepspeed.KIND
    steps = call.kwargs.get("gradient_accumulation_steps", 1)
    if "gradient_accumulation_plugin" in call.kwargs or REST in call.kwargs:
        steps = Unknown(f"{id(call.node)}:accumulation", "gradient_accumulation_steps")
    return Accelerator(None, "accelerate", steps)


def fabric(_m: Machine, _call: Call) -> Value:
    """Follow `Fabric(...)`."""
    return Accelerator(None, "fabric", 1)


def method(m: Machine, value: Accelerator, call: Call) -> Value:
    """Call a method of Accelerate's or Fabric's object, or of DeepSpeed's engine."""
    if value.kind == deepspeed.KIND:
        return deepspeed.method(m, value, call)
    handler = _METHODS.get(call.name)
    return handler(m, value, call) if handler is not None else call.unknown(m)


def count_of(value: Accelerator) -> int | float | None:
    """Return the number of micro-batches of a window, taken for one if it is not known."""
    every = numbers.number(value.steps)
    if every is None and isinstance(value.steps, Unknown):
        every = value.steps.number()
    return every


def _prepare(_m: Machine, value: Accelerator, call: Call) -> Value:
    for arg in call.args:
        inner = unify(arg)
        if isinstance(inner, Unknown):
            inner.attrs[PREPARED] = value
        elif isinstance(inner, Optimizer | Scheduler) and value.kind == "accelerate":
            inner.accelerator = value
    return call.args[0] if len(call.args) == 1 else tuple(call.args)


def _same(m: Machine, _value: Accelerator, call: Call) -> Value:
    return call.args[0] if call.args else call.unknown(m)


def _backward(m: Machine, value: Accelerator, call: Call) -> Value:
    divides = value.kind == "accelerate" and value.steps != 1
    return backward.through(m, call, value.steps if divides else None)


def _accumulate(m: Machine, value: Accelerator, _call: Call) -> Context:
    def enter() -> None:
        value.micro += 1
        every = count_of(value)
        if not isinstance(every, int) or every <= 1:
            return
        m.managed = "accelerate"
        m.accumulating = value
        m.hang(every)
        loop = next((loop for loop in reversed(m.loops) if loop.kind != "range"), None)
        last = loop is not None and loop.length is not None and loop.index == loop.length - 1
        value.syncs = value.micro % every == 0 or last
        if last:
            value.micro = 0

    def leave() -> None:
        m.accumulating = None

    return Context(enter, leave)


def _no_sync(_m: Machine, _value: Accelerator, call: Call) -> Context:
    net = unify(call.first)
    enabled = call.kwargs.get("enabled", True)
    holds = enabled.holds if isinstance(enabled, Gate) else enabled
    if not isinstance(net, Net):
        return Context()
    return models.without_sync(net, sync=not holds if isinstance(holds, bool) else None)


def _clip(m: Machine, _value: Accelerator, call: Call) -> Value:
    known = [unify(value) for value in call.inputs]
    optimizer = next((inner for inner in known if isinstance(inner, Optimizer)), None)
    nets = optimizer.nets if optimizer is not None else tensors.parameters_of(call.first)
    by = "value" if "value" in call.name else "norm"
    # Accelerate unscales before it clips, and does neither in the middle of a window.
    call.note(m, "clip", nets=nets, optimizer=optimizer, by=by, limit=None)
    return call.unknown(m)


def _nothing(_m: Machine, _value: Accelerator, _call: Call) -> Value:
    return None


def _context(_m: Machine, _value: Accelerator, _call: Call) -> Value:
    return Context()


def _gather(m: Machine, _value: Accelerator, call: Call) -> Value:
    return tensors.derive(m, call.node, call.args, call.scope)


_TABLE: dict[Callable[[Machine, Accelerator, Call], Value], tuple[str, ...]] = {
    _prepare: ("prepare", "setup", "setup_dataloaders", "setup_module", "setup_optimizers"),
    _same: ("prepare_model", "prepare_data_loader", "unwrap_model"),
    _backward: ("backward",),
    _accumulate: ("accumulate",),
    _no_sync: ("no_backward_sync", "no_sync"),
    _clip: ("clip_grad_norm_", "clip_grad_value_", "clip_gradients"),
    _nothing: ("unscale_gradients",),
    _context: ("autocast", "main_process_first", "join_uneven_inputs", "profile"),
    _gather: ("gather", "gather_for_metrics", "reduce", "pad_across_processes", "all_reduce"),
}
_METHODS = {name: handler for handler, names in _TABLE.items() for name in names}
