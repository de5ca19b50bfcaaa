"""Methods of things that are not the project's: optimizers, models, scalers, schedulers, losses."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from instep.check.execute import api, containers, grads, roles, tensors, wrappers
from instep.check.execute.machine import Machine
from instep.check.execute.values import (
    Accelerator,
    Context,
    Criterion,
    DictValue,
    Function,
    Gate,
    Grad,
    Instance,
    Iterator,
    ListValue,
    Method,
    Net,
    Optimizer,
    Param,
    Parameters,
    Scaler,
    Scheduler,
    Super,
    Tensor,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from instep.check.execute.program import Scope

NET_METHODS = frozenset(
    {"train", "eval", "parameters", "named_parameters", "zero_grad", "to", "cuda", "cpu", "half",
     "float", "double", "bfloat16", "requires_grad_", "no_sync", "state_dict", "load_state_dict",
     "forward", "__call__", "modules", "children", "named_modules", "apply", "compile", "backward",
     "step", "register_buffer", "gradient_checkpointing_enable", "share_memory"}
)  # fmt: skip
_SAME_NET = frozenset(
    {"to", "cuda", "cpu", "half", "float", "double", "bfloat16", "apply", "share_memory", "module"}
)
UNEVEN = "(uneven)"
_NOTHING = frozenset({"state_dict", "load_state_dict", "register_buffer", "get_scale", "is_enabled"})


def method(
    m: Machine,
    node: ast.Call,
    receiver: Value,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Call a method of something that is not the project's."""
    if isinstance(receiver, Unknown):
        known = receiver.made or become(m, node, receiver, name, args, scope)
        if known is None:
            return _of_unknown(m, node, receiver, name, args, kwargs, scope)
        receiver = known
    match receiver:
        case Tensor():
            return _tensor(m, node, receiver, name, args, kwargs, scope)
        case Optimizer():
            return optimizer(m, node, receiver, name, args, kwargs, scope)
        case Net():
            return net(m, node, receiver, name, args, kwargs, scope)
        case Scaler():
            return scaler(m, node, receiver, name, args, scope)
        case Scheduler():
            return scheduler(m, node, receiver, name, args, kwargs, scope)
        case Grad():
            return grads.method(m, node, receiver, name, args, scope)
        case Accelerator():
            return wrappers.method(m, node, receiver, name, args, kwargs, scope)
        case ListValue() | DictValue() | Iterator():
            return containers.method(m, node, receiver, name, args, scope)
        case Criterion() if name in {"to", "cuda", "cpu", "train", "eval"}:
            return receiver
        case Criterion() if name == "parameters":
            return Parameters(frozenset())
        case Super():
            return _super(m, node, receiver, name, args, kwargs, scope)
        case Param() if name in {"detach", "clone", "register_hook"}:
            return m.unknown(node, scope)
    return api.unknown_call(m, node, name, [receiver, *args], kwargs, scope)


def become(
    m: Machine, node: ast.Call, value: Unknown, name: str, args: list[Value], scope: Scope
) -> Any:
    """Decide what an unknown receiver is, from the method and from how its name is used."""
    short = roles.last(value.known_as)
    uses = scope.module.scan.uses.get(short, set())
    made: Any = None
    if name == "backward" and (not args or roles.CRITERION.search(short)):
        made = tensors.as_tensor(m, value, node)
    elif name == "zero_grad":
        is_net = ("step" not in uses and roles.MODEL.search(short)) or (
            uses & {"parameters", "train", "eval"} and not roles.OPTIMIZER.search(short)
        )
        made = hinted(value, short) if is_net else Optimizer(None, value.hint)
    elif name in {"scale", "unscale_"} or (
        name in {"step", "update"} and roles.SCALER.search(short)
    ):
        if name == "unscale_" or roles.SCALER.search(short) or uses & {"unscale_", "update"}:
            made = Scaler(None)
    elif name in {"parameters", "named_parameters", "no_sync"} or (
        name in {"train", "eval"} and len(args) <= 1 and roles.last(value.known_as) != "self"
    ):
        made = hinted(value, short)
    elif name == "step":
        made = _stepping(m, node, value, short, uses, args, scope)
    elif name in {"get_last_lr"}:
        made = Scheduler(None)
    elif wrappers.is_accelerator(short, name):
        made = Accelerator(value.known_as, wrappers.kind_of(short), 1)
        made.steps = Unknown(f"{value.key}:accumulation", "accumulation_steps")
    if made is not None:
        made.known_as = made.known_as or value.known_as
        value.made = made
        if isinstance(made, Optimizer | Scheduler):
            made.accelerator = value.attrs.get(wrappers.PREPARED)
    return made


def _stepping(
    m: Machine,
    node: ast.Call,
    value: Unknown,
    short: str,
    uses: set[str],
    args: list[Value],
    scope: Scope,
) -> Any:
    if "backward" in uses and roles.MODEL.search(short) is not None:
        return None
    if roles.SCHEDULER.search(short):
        return Scheduler(None)
    if roles.OPTIMIZER.search(short) or "zero_grad" in uses:
        return Optimizer(None, value.hint)
    return None


def hinted(value: Unknown, name: str) -> Net:
    """Return the model that an unknown value is: the one it was made of, or a new one."""
    if value.hint is not None and len(value.hint) == 1:
        return next(iter(value.hint))
    return Net(name)


def _of_unknown(
    m: Machine,
    node: ast.Call,
    value: Unknown,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    short = roles.last(value.known_as)
    if name == "backward":
        return wrappers.managed(m, node, short, [*args, *kwargs.values()], scope)
    if name == "step":
        if not roles.NOT_OPTIMIZER.search(short) and not args and not kwargs:
            m.note("opaque", node, scope, what=f"{short}.step", values=None)
            m.problem(f"`{value.known_as}.step` may be an update, or not", node)
        return m.unknown(node, scope)
    if name in {"items", "values", "keys", "copy", "to", "cuda", "float", "long", "int"}:
        return value
    if name in {"sum", "numel", "ne", "size"}:
        made = m.unknown(node, scope, "sum()" if name == "sum" else "", value.drawn)
        return made
    if name == "split" and args and value.drawn is not None:
        made = m.unknown(node, scope, "", value.drawn)
        size = getattr(value.drawn, "batch", None)
        if isinstance(size, int) and isinstance(args[0], int) and args[0] > 0 and size % args[0]:
            made.attrs[UNEVEN] = True
        return made
    if name in {"get", "pop"} and args and isinstance(args[0], str):
        at = f".get({args[0]!r})"
        if at not in value.attrs:
            value.attrs[at] = Unknown(value.key + at, args[0], value.drawn)
        return value.attrs[at]
    if roles.MODEL.search(short) and not value.drawn and not roles.LOADER.search(short):
        tensor = api.unknown_call(m, node, name, args, kwargs, scope)
        return tensor
    inputs = [value, *args] if value.drawn is not None else args
    made = api.unknown_call(m, node, name, inputs, kwargs, scope)
    if isinstance(made, Unknown) and not made.known_as:
        made.known_as = f"{name}()" if name == "sum" else ""
    return made


def call_unknown(
    m: Machine,
    node: ast.Call,
    value: Unknown,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Call something unknown: its name and its uses say whether it is a model or a loss."""
    short = roles.last(value.known_as)
    uses = scope.module.scan.uses.get(short, set())
    inputs = [*args, *kwargs.values()]
    if wrappers.is_loss_scaler(short, inputs):
        return wrappers.loss_scaler(m, node, args, kwargs, scope)
    if roles.CRITERION.search(short):
        kind = short if roles.COUPLED.search(short) else None
        made = Criterion(value.known_as, kind, None, coupled=True if kind else None)
        return api.loss(m, node, made, inputs)
    if short[:1].isupper() and len(short) > 1 and not tensors.made_of(inputs)[0]:
        return api.call(m, node, short, args, kwargs, scope)
    if uses & {"train", "eval", "parameters", "zero_grad"} or roles.MODEL.search(short):
        if not short.startswith(("get_", "build_", "create_", "make_", "load_", "save_", "init")):
            value.made = hinted(value, short)
            value.made.known_as = value.made.known_as or value.known_as
            return net(m, node, value.made, "__call__", args, kwargs, scope)
    return api.unknown_call(m, node, str(value.known_as), args, kwargs, scope)


def call(
    m: Machine,
    node: ast.Call,
    value: Value,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Call a thing of a known role."""
    if isinstance(value, Net):
        return net(m, node, value, "__call__", args, kwargs, scope)
    if isinstance(value, Criterion):
        return api.loss(m, node, value, [*args, *kwargs.values()])
    if isinstance(value, Accelerator):
        return wrappers.method(m, node, value, "__call__", [*args, *kwargs.values()], {}, scope)
    if isinstance(value, Scaler):
        return wrappers.loss_scaler(m, node, args, kwargs, scope, value)
    return api.unknown_call(m, node, str(value.known_as), args, kwargs, scope)


def _tensor(
    m: Machine,
    node: ast.Call,
    tensor: Tensor,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    if name == "backward":
        if args and args[0] is not None:
            tensor = tensors.copy(m, tensor, node)
            tensor.parts = None  # it is multiplied by a gradient that came from elsewhere
        backward(m, node, tensor, scope, limited="inputs" in kwargs)
        return None
    return tensors.method(m, node, tensor, name, [*args, *kwargs.values()], scope)


def backward(
    m: Machine,
    node: ast.AST,
    tensor: Tensor,
    scope: Scope,
    *,
    part: Value = None,
    limited: bool = False,
) -> None:
    """Gradients are added."""
    m.backed.add(tensor.ident)
    m.backed.update(tensor.chain)
    m.summed.update(tensor.sums)
    m.note(
        "backward", node, scope, tensor=tensor, part=part, limited=limited,
        things=tuple(m.things), serial=m.serial,
    )  # fmt: skip


def optimizer(
    m: Machine,
    node: ast.Call,
    value: Optimizer,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Call a method of an optimizer."""
    managed = value.accelerator or m.accumulating
    if name == "zero_grad":
        if managed is None or managed.syncs:
            zero(m, node, scope, args, kwargs, optimizer=value)
        return None
    if name == "step":
        if args and isinstance(tensors.unify(args[0]), Unknown) and "ctx" in ast.unparse(node):
            m.managed = "dist_autograd"
            return None
        if managed is None or managed.syncs:
            closure = args[0] if args else kwargs.get("closure")
            return step(m, node, value, scope, closure=closure)
        return None
    if name == "add_param_group":
        held = tensors.parameters_of(args[0]) if args else None
        value.nets = None if held is None or value.nets is None else value.nets | held
        m.note("grouped", node, scope, optimizer=value, nets=held)
        return None
    if name == "backward" and args:
        wrappers.managed(m, node, str(value.known_as), args, scope)
        return None
    if name in {"prepare", "to", "cuda"}:
        return value
    if name.startswith("step"):
        m.note("opaque", node, scope, what=name, values=[value])
    return m.unknown(node, scope)


def zero(
    m: Machine,
    node: ast.Call,
    scope: Scope,
    args: list[Value],
    kwargs: dict[str, Value],
    **target: Value,
) -> None:
    """Gradients are cleared."""
    chosen = args[0] if args else kwargs.get("set_to_none", True)
    none = chosen if isinstance(chosen, bool) else None
    m.note("zero", node, scope, set_to_none=none, **target)


def step(
    m: Machine,
    node: ast.Call,
    value: Optimizer,
    scope: Scope,
    *,
    closure: Value = None,
    through: Scaler | None = None,
) -> Value:
    """An optimizer updates."""
    result: Value = m.unknown(node, scope)
    if isinstance(closure, Unknown) and closure.made is None:
        m.note("opaque", node, scope, what="closure", values=[value])
    elif isinstance(closure, Function):
        from instep.check.execute import calls

        result = calls.invoke(m, node, closure, [], {}, scope)
    m.note(
        "step", node, scope, optimizer=value, scaler=through,
        closure=closure is not None, gate=m.gate(),
    )  # fmt: skip
    return result


def net(
    m: Machine,
    node: ast.Call,
    value: Net,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Call a model, or a method of one."""
    inputs = [*args, *kwargs.values()]
    if name in {"__call__", "forward"}:
        return forward(m, node, value, inputs, scope)
    if name in {"train", "eval"}:
        _mode(m, node, value, name, args, kwargs, scope)
        return value
    if name in {"parameters", "named_parameters", "trainable_parameters"}:
        return Parameters(frozenset({value}), named=name == "named_parameters")
    if name == "zero_grad":
        zero(m, node, scope, args, kwargs, net=value)
        return None
    if name in _SAME_NET:
        return value
    if name == "requires_grad_":
        chosen = args[0] if args else kwargs.get("requires_grad", True)
        value.frozen = chosen is False
        return value
    if name in {"no_sync", "set_requires_gradient_sync"}:
        return _no_sync(value)
    if name in {"modules", "children", "named_modules", "named_children", "items", "values"}:
        part = value.attrs.setdefault("[]", Net(f"{value.known_as}[]", part_of=value))
        pair = (m.unknown(node, scope, "name"), part) if "named" in name or name == "items" else part
        return ListValue([pair], exact=False)
    if name in {"backward", "step"} and (args or name == "step"):
        wrappers.managed(m, node, str(value.known_as), inputs, scope)
        return None
    if name in _NOTHING:
        return m.unknown(node, scope)
    if name == "resize_token_embeddings":
        m.note("rebound", node, scope, name=str(value.known_as), was=value, now=None, part=True)
        return m.unknown(node, scope)
    if wrappers.is_lightning(value, name):
        return wrappers.lightning(m, node, value, name, args, kwargs, scope)
    api.watch_opaque(m, node, name, inputs, scope)
    return _through(m, node, value, inputs)


def forward(m: Machine, node: ast.Call, value: Net, inputs: list[Value], scope: Scope) -> Value:
    """A model is called."""
    own = None
    if value.cls is not None:
        from instep.check.execute import attributes, calls

        own = attributes.find_member(value, "forward")
        if isinstance(own, Function) and _does(own, scope):
            bound = calls.bind(m, node, own, value, scope)
            return calls.invoke(m, node, bound, inputs, {}, scope)
    if not m.no_grad:
        sync = value.sync if value.spread_over() is not None else None
        m.note("forward", node, scope, net=value, training=value.training, sync=sync)
    return _through(m, node, value, inputs)


def _through(m: Machine, node: ast.AST, value: Net, inputs: list[Value]) -> Tensor:
    """Return what a model makes of its inputs."""
    found, nets, _ = tensors.made_of(inputs)
    made = m.tensor(frozenset() if value.frozen else frozenset({value}), node)
    if made.graph and made.nets is not None:
        made.nets |= nets
    for tensor in found:
        if tensor.graph and made.nets is not None and tensor.nets is not None and made.graph:
            made.nets = made.nets | tensor.nets
    if value.frozen and not any(tensor.graph for tensor in found):
        made.graph = False
    made.coupled = True if any(tensor.coupled for tensor in found) else None
    return made


def _does(function: Function, scope: Scope) -> bool:
    names = function.scope.module.scan.names.get(id(function.code), frozenset())
    return bool(names & {"backward", "zero_grad", "manual_backward"})


def _mode(
    m: Machine,
    node: ast.Call,
    value: Net,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> None:
    chosen = args[0] if args else kwargs.get("mode", True)
    training = name == "train" and chosen is not False
    if name == "train" and not isinstance(chosen, bool | Gate):
        for part in value.inside():
            part.training = None
        return
    for part in value.inside():
        part.training = training
    value.training = training
    m.note("mode", node, scope, net=value, training=training)


def _no_sync(value: Net) -> Context:
    def enter() -> Value:
        value.sync = False
        return None

    def leave() -> None:
        value.sync = True

    return Context(enter, leave)


def scaler(
    m: Machine, node: ast.Call, value: Scaler, name: str, args: list[Value], scope: Scope
) -> Value:
    """Call a method of a scaler."""
    if name == "scale" and args:
        return tensors.scale(m, node, args[0], value, scope)
    if name == "update":
        m.note("scaler-update", node, scope, scaler=value)
        return None
    if name in {"step", "unscale_"} and args:
        target = optimizer_of(m, args[0])
        if target is None:
            m.note("opaque", node, scope, what=f"{value.known_as}.{name}", values=None)
        elif name == "step":
            if target.accelerator is None or target.accelerator.syncs:
                return step(m, node, target, scope, through=value)
        else:
            m.note("unscale", node, scope, optimizer=target, scaler=value)
        return None
    if name == "is_enabled":
        return value.enabled if value.enabled is not None else m.unknown(node, scope, "enabled")
    return m.unknown(node, scope)


def optimizer_of(m: Machine, value: Value) -> Optimizer | None:
    """Return the optimizer that a value is, wraps, or must be."""
    if isinstance(value, Unknown) and value.made is None:
        value.made = Optimizer(value.known_as)
    value = tensors.unify(value)
    if isinstance(value, Optimizer):
        return value
    if isinstance(value, Instance):
        for inner in value.attrs.values():
            found = tensors.unify(inner)
            if isinstance(found, Optimizer):
                return found
    return None


def scheduler(
    m: Machine,
    node: ast.Call,
    value: Scheduler,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Call a method of a scheduler."""
    if name in {"step", "step_update"}:
        managed = value.accelerator or m.accumulating
        if managed is None or managed.syncs:
            m.note(
                "schedule", node, scope, scheduler=value, explicit=bool(args or kwargs),
                update=name == "step_update", gate=m.gate(),
            )  # fmt: skip
        return None
    return m.unknown(node, scope)


def _super(
    m: Machine,
    node: ast.Call,
    value: Super,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    inner = value.of
    if isinstance(inner, Net) and name in NET_METHODS:
        return net(m, node, inner, name, args, kwargs, scope)
    if isinstance(inner, Net) and wrappers.is_lightning(inner, name):
        return wrappers.lightning(m, node, inner, name, args, kwargs, scope)
    if name in {"step", "zero_grad", "backward", "train_step", "optimize"}:
        m.note("opaque", node, scope, what=f"super().{name}", values=None)
        m.problem(f"the base class of `{name}` is not in the project", node)
    return m.unknown(node, scope)


__all__ = ["Method"]
