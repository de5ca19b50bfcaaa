"""Objects through which a loop goes instead of calling torch: Accelerate, Fabric, Lightning's
manual optimization, DeepSpeed, apex, and loss scalers that do everything in one call.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from instep.check.execute import numbers, tensors
from instep.check.execute.values import (
    Accelerator,
    Class,
    Context,
    DictValue,
    Function,
    ListValue,
    Loader,
    Net,
    Optimizer,
    Scaler,
    Scheduler,
    Tensor,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope

_ACCELERATOR = re.compile(r"accelerat|^fabric$|_fabric$", re.IGNORECASE)
_SCALER = re.compile(r"scaler", re.IGNORECASE)
PREPARED = "(prepared by)"
"""Marks what was handed to `prepare` before its role was known."""
_LIGHTNING = frozenset(
    {"manual_backward", "optimizers", "lr_schedulers", "clip_gradients", "toggle_optimizer",
     "untoggle_optimizer", "log", "log_dict"}
)  # fmt: skip


def is_accelerator(short: str, name: str) -> bool:
    """Say whether a name and the method called on it are those of Accelerate or Fabric."""
    return _ACCELERATOR.search(short) is not None and name not in {"step", "to", "cuda"}


def kind_of(short: str) -> str:
    """Return which of the two it is.

    >>> kind_of("self.fabric")
    'fabric'
    """
    return "fabric" if "fabric" in short.lower() else "accelerate"


def accelerator(
    m: Machine, node: ast.Call, args: list[Value], kwargs: dict[str, Value], scope: Scope
) -> Value:
    """Return what `Accelerator(...)` makes."""
    steps = kwargs.get("gradient_accumulation_steps", 1)
    if "gradient_accumulation_plugin" in kwargs or "**" in kwargs:
        steps = Unknown(f"{id(node)}:accumulation", "gradient_accumulation_steps")
    return Accelerator(None, "accelerate", steps)


def fabric(
    m: Machine, node: ast.Call, args: list[Value], kwargs: dict[str, Value], scope: Scope
) -> Value:
    """Return what `Fabric(...)` makes."""
    return Accelerator(None, "fabric", 1)


def method(
    m: Machine,
    node: ast.Call,
    value: Accelerator,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Call a method of Accelerate's or Fabric's object, or of DeepSpeed's engine."""
    if value.kind == "deepspeed":
        return engine_method(m, node, value, name, args, scope)
    if name in {"prepare", "setup", "setup_dataloaders", "setup_module", "setup_optimizers"}:
        made = tuple(_prepared(value, arg) for arg in args)
        return made if len(made) != 1 else made[0]
    if name == "prepare_model" or name == "prepare_data_loader":
        return args[0] if args else m.unknown(node, scope)
    if name == "backward":
        from instep.check.execute import things

        tensor = tensors.as_tensor(m, args[0], node) if args else None
        if tensor is not None:
            part = value.steps if value.kind == "accelerate" and _divides(value) else None
            things.backward(m, node, tensor, scope, part=part)
        return None
    if name == "accumulate":
        return _accumulate(m, value)
    if name in {"no_backward_sync", "no_sync"}:
        return _no_sync(m, args, kwargs)
    if name in {"clip_grad_norm_", "clip_grad_value_", "clip_gradients"}:
        _clip(m, node, value, name, args, kwargs, scope)
        return m.unknown(node, scope)
    if name in {"unscale_gradients"}:
        return None
    if name in {"autocast", "main_process_first", "join_uneven_inputs", "profile"}:
        return Context()
    if name == "unwrap_model" and args:
        return args[0]
    if name in {"gather", "gather_for_metrics", "reduce", "pad_across_processes", "all_reduce"}:
        found = tensors.derive(m, node, args, scope)
        return found
    return m.unknown(node, scope)


def _divides(value: Accelerator) -> bool:
    return value.steps != 1


def _prepared(value: Accelerator, arg: Value) -> Value:
    if isinstance(arg, Unknown) and arg.made is None:
        arg.attrs[PREPARED] = value
        return arg
    inner = tensors.unify(arg)
    if isinstance(inner, Optimizer | Scheduler) and value.kind == "accelerate":
        inner.accelerator = value
    return arg


def _accumulate(m: Machine, value: Accelerator) -> Context:
    def enter() -> Value:
        value.micro += 1
        every = numbers.number(value.steps)
        if every is None and isinstance(value.steps, Unknown):
            every = value.steps.number()
        loop = next((loop for loop in reversed(m.loops) if loop.kind != "range"), None)
        last = loop is not None and loop.length is not None and loop.index == loop.length - 1
        if isinstance(every, int) and every > 1:
            m.managed = "accelerate"
            m.accumulating = value
            for outer in m.loops:
                outer.moduli.add(every)
            m.lengths.need(every)
            value.syncs = value.micro % every == 0 or last
            if last:
                value.micro = 0
        return None

    def leave() -> None:
        m.accumulating = None

    return Context(enter, leave)


def _no_sync(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Context:
    net = tensors.unify(args[0]) if args else None
    enabled = kwargs.get("enabled", True)
    holds = enabled.holds if isinstance(enabled, numbers.Gate) else enabled

    def enter() -> Value:
        if isinstance(net, Net):
            net.sync = not holds if isinstance(holds, bool) else None
        return None

    def leave() -> None:
        if isinstance(net, Net):
            net.sync = True

    return Context(enter, leave)


def _clip(
    m: Machine,
    node: ast.Call,
    value: Accelerator,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> None:
    by = "value" if "value" in name else "norm"
    held: Value = args[0] if args else None
    optimizer = next(
        (
            inner
            for inner in map(tensors.unify, (*args, *kwargs.values()))
            if isinstance(inner, Optimizer)
        ),
        None,
    )
    nets = optimizer.nets if optimizer is not None else tensors.parameters_of(held)
    # Accelerate unscales before it clips, and does neither in the middle of a window.
    m.note(
        "clip", node, scope, nets=nets, optimizer=optimizer, by=by, limit=None, unscales=True
    )


def managed(
    m: Machine, node: ast.AST, name: str, inputs: list[Value], scope: Scope
) -> Value:
    """A framework's own `backward` or `step`: it counts micro-batches by itself."""
    m.managed = m.managed or "engine"
    m.note("opaque", node, scope, what=name, values=None)
    return None


def is_loss_scaler(short: str, inputs: list[Value]) -> bool:
    """Say whether a call is `loss_scaler(loss, optimizer, ...)`: backward, clip and step in one."""
    known = [tensors.unify(value) for value in inputs]
    return _SCALER.search(short) is not None and any(isinstance(v, Optimizer) for v in known)


def loss_scaler(
    m: Machine,
    node: ast.Call,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
    scaler: Scaler | None = None,
) -> Value:
    """Follow `loss_scaler(loss, optimizer, clip_grad=..., need_update=...)`."""
    from instep.check.execute import things

    inputs = [*args, *kwargs.values()]
    tensor = tensors.as_tensor(m, args[0], node) if args else None
    optimizer = next((v for v in map(tensors.unify, inputs) if isinstance(v, Optimizer)), None)
    if tensor is None or optimizer is None:
        m.note("opaque", node, scope, what="loss_scaler", values=None)
        return None
    things.backward(m, node, tensor, scope)
    update = kwargs.get("need_update", kwargs.get("update_grad", True))
    gate = (update.every, update.literal) if isinstance(update, numbers.Gate) else m.gate()
    holds = update.holds if isinstance(update, numbers.Gate) else update
    if isinstance(holds, bool) and isinstance(update, numbers.Gate):
        for loop in m.loops:
            loop.moduli.add(update.every)
    if holds is not False:
        m.note("step", node, scope, optimizer=optimizer, scaler=None, closure=False, gate=gate)
        if not isinstance(holds, bool):
            m.note("opaque", node, scope, what="loss_scaler", values=[optimizer])
    return m.unknown(node, scope)


def is_lightning(value: Net, name: str) -> bool:
    """Say whether a method is one of a LightningModule."""
    return name in _LIGHTNING and (value.cls is None or not _has(value.cls, name))


def _has(cls: Class, name: str) -> bool:
    return any(name in base.members for base in cls.mro())


def lightning(
    m: Machine,
    node: ast.Call,
    value: Net,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Follow manual optimization."""
    from instep.check.execute import things

    if name == "manual_backward" and args:
        tensor = tensors.as_tensor(m, args[0], node)
        if tensor is not None:
            things.backward(m, node, tensor, scope)
        return None
    if name == "optimizers":
        return _configured(m, node, value, scope, Optimizer)
    if name == "lr_schedulers":
        return _configured(m, node, value, scope, Scheduler)
    if name == "clip_gradients":
        optimizer = things.optimizer_of(m, args[0]) if args else None
        nets = optimizer.nets if optimizer is not None else None
        m.note("clip", node, scope, nets=nets, optimizer=optimizer, by="norm", limit=None)
        return None
    return None


def _configured(
    m: Machine, node: ast.Call, value: Net, scope: Scope, role: type[Optimizer] | type[Scheduler]
) -> Value:
    from instep.check.execute import attributes, calls

    made = value.attrs.get("configured optimizers")
    if made is None:
        function = attributes.find_member(value, "configure_optimizers")
        if isinstance(function, Function):
            bound = Function(function.code, function.scope, bound=value, owner=function.owner)
            made = calls.invoke(m, node, bound, [], {}, scope)
        value.attrs["configured optimizers"] = made if made is not None else ListValue([])
    found = list(dict.fromkeys(_of_role(made, role)))
    if not found:
        word = "optimizer" if role is Optimizer else "scheduler"
        return Unknown(f"{id(value)}.{word}", word)
    return found[0] if len(found) == 1 else tuple(found)


def _of_role(value: Value, role: type) -> list[Value]:
    value = tensors.unify(value)
    if isinstance(value, role):
        return [value]
    if isinstance(value, tuple | list):
        return [found for item in value for found in _of_role(item, role)]
    if isinstance(value, ListValue):
        return [found for item in value.items for found in _of_role(item, role)]
    if isinstance(value, DictValue):
        return [found for item in value.items.values() for found in _of_role(item, role)]
    return []


def deepspeed(
    m: Machine, node: ast.Call, args: list[Value], kwargs: dict[str, Value], scope: Scope
) -> Value:
    """Return what `deepspeed.initialize` gives: an engine that counts for itself."""
    m.managed = "deepspeed"
    net = tensors.unify(kwargs.get("model", args[1] if len(args) > 1 else None))
    config = kwargs.get("config", kwargs.get("config_params"))
    steps = config.items.get("gradient_accumulation_steps") if isinstance(config, DictValue) else None
    engine: Value = Unknown(f"{id(node)}:engine", "model_engine")
    if steps is not None:
        engine = Accelerator(None, "deepspeed", steps)
        engine.attrs["net"] = net if isinstance(net, Net) else Net("model")
        held = frozenset({engine.attrs["net"]})
        engine.attrs["optimizer"] = Optimizer("engine", held)
    rest = [Unknown(f"{id(node)}:{name}", f"engine_{name}") for name in ("state", "rate")]
    return (engine, rest[0], Loader("loader"), rest[1])


def engine_method(
    m: Machine, node: ast.Call, value: Accelerator, name: str, args: list[Value], scope: Scope
) -> Value:
    """Follow DeepSpeed's engine: it divides the loss, and every n-th step is one."""
    from instep.check.execute import things

    if name in {"__call__", "forward"}:
        return things.forward(m, node, value.attrs["net"], args, scope)
    if name == "backward" and args:
        tensor = tensors.as_tensor(m, args[0], node)
        if tensor is not None:
            things.backward(m, node, tensor, scope, part=value.steps)
        return None
    if name == "step":
        value.micro += 1
        every = numbers.number(value.steps)
        if every is None and isinstance(value.steps, Unknown):
            every = value.steps.number()
        if isinstance(every, int) and every > 1:
            for loop in m.loops:
                loop.moduli.add(every)
            m.lengths.need(every)
        if not isinstance(every, int) or value.micro % max(every, 1) == 0:
            optimizer = value.attrs["optimizer"]
            things.step(m, node, optimizer, scope)
            m.note("zero", node, scope, set_to_none=True, optimizer=optimizer)
        return None
    if name in {"train", "eval", "parameters", "named_parameters"}:
        return things.net(m, node, value.attrs["net"], name, args, {}, scope)
    return m.unknown(node, scope)


def scale_loss(
    m: Machine, node: ast.Call, args: list[Value], kwargs: dict[str, Value], scope: Scope
) -> Value:
    """Return apex's context: the scale is put on when it is entered and taken off when left."""
    tensor = tensors.as_tensor(m, args[0], node) if args else None
    return Context(lambda: tensor if isinstance(tensor, Tensor) else m.unknown(node, scope))


def amp_initialize(
    m: Machine, node: ast.Call, args: list[Value], kwargs: dict[str, Value], scope: Scope
) -> Value:
    """Return what apex's `amp.initialize` gives: the same objects."""
    return tuple(args[:2]) if len(args) > 1 else (args[0] if args else m.unknown(node, scope))
