"""Functions of torch that do something to gradients, modes or parameters."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import api, tensors, wrappers
from instep.check.execute.values import (
    Context,
    Grad,
    ListValue,
    Net,
    Optimizer,
    Param,
    Parameters,
    Scaler,
    Tensor,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope

    Values = list[Value]
    Named = dict[str, Value]


def _clip(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    held = args[0] if args else kwargs.get("parameters")
    name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
    limit = args[1] if len(args) > 1 else kwargs.get("max_norm", kwargs.get("clip_value"))
    inner = tensors.unify(held)
    optimizer = inner.optimizer if isinstance(inner, Param) else None
    nets = tensors.parameters_of(held)
    m.note(
        "clip", node, scope, nets=nets, optimizer=optimizer,
        by="value" if "value" in str(name) else "norm",
        limit=limit if isinstance(limit, int | float) else None,
    )  # fmt: skip
    return m.unknown(node, scope, "norm")


def _scaler(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    enabled = kwargs.get("enabled", True)
    made = Scaler(None, enabled if isinstance(enabled, bool) else None)
    made.node, made.module = node, scope.module
    return made


def _context(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    return Context()


def _autocast(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    return Context()


def _grad_enabled(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    off = bool(args) and (args[0] is False or getattr(args[0], "holds", True) is False)

    def enter() -> Value:
        m.no_grad += off
        return None

    def leave() -> None:
        m.no_grad -= off

    return Context(enter, leave)


def _enable_grad(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    before = m.no_grad

    def enter() -> Value:
        m.no_grad = 0
        return None

    def leave() -> None:
        m.no_grad = before

    return Context(enter, leave)


def _backward(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    from instep.check.execute import things

    path = ast.unparse(node.func)
    if "dist" in path:
        m.managed = "dist_autograd"
        return None
    value = tensors.unify(args[0]) if args else None
    items = value.items if isinstance(value, ListValue) else value
    for item in items if isinstance(items, list | tuple) else [args[0] if args else None]:
        tensor = tensors.as_tensor(m, item, node)
        if tensor is not None:
            things.backward(m, node, tensor, scope)
    return None


def _autograd_grad(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    found, _, _ = tensors.made_of(args[:1])
    if kwargs.get("create_graph") is True and found:
        return tensors.derive(m, node, found, scope)  # a penalty on gradients goes on from here
    return m.unknown(node, scope)


def _join(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    made = tensors.derive(m, node, args, scope)
    pieces = args[0] if args else None
    if node.args and isinstance(node.args[0], ast.BinOp) and isinstance(made, Unknown):
        made = m.tensor(None, node)
        made.coupled = True
    if isinstance(made, Tensor) and isinstance(pieces, ListValue) and not pieces.exact:
        found, _, _ = tensors.made_of([pieces])
        if any(t.graph for t in found) and (len(found) < 2 or not all(t.graph for t in found)):
            made.coupled = True  # one piece among others that were kept: a loss over all of them
    return made


def _reduce(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    name = str(getattr(node.func, "attr", None) or getattr(node.func, "id", ""))
    tensor = tensors.unify(args[0]) if args else None
    if isinstance(tensor, Tensor):
        return tensors.method(m, node, tensor, name, args[1:], scope)
    return tensors.derive(m, node, args, scope)


def _copy(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    value = tensors.unify(args[0]) if args else None
    if isinstance(value, Net):
        made = Net(None, value.kind)
        made.cls, made.written, made.training = value.cls, True, value.training
        made.batchnorm, made.trainable = value.batchnorm, value.trainable
        return made
    return args[0] if args else m.unknown(node, scope)


def _same(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    return args[0] if args else Context()


def _wrap(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    given = args or [kwargs.get("module", kwargs.get("model"))]
    name = str(getattr(node.func, "attr", None) or getattr(node.func, "id", ""))
    return api.wrap(given, name)


def _parametrize(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    net = tensors.unify(args[0]) if args else None
    if isinstance(net, Net):
        building = any(getattr(code, "name", "") == "__init__" for code in m.stack)
        if not building:
            name = ast.unparse(node.args[0])
            m.note("rebound", node, scope, name=name, was=net, now=None, part=True)
        return net
    return args[0] if args else m.unknown(node, scope)


def _optimizer_step(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    from instep.check.execute import things

    target = things.optimizer_of(m, args[0]) if args else None
    return things.step(m, node, target, scope) if target is not None else None


def _exit_stack(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    return Context(lambda: m.unknown(node, scope, "stack"))


def _chain(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    nets = tensors.parameters_of(ListValue(list(args)))
    known = [tensors.unify(arg) for arg in args]
    if known and all(isinstance(arg, Parameters) for arg in known):
        return Parameters(nets)
    if nets:
        return Parameters(nets)
    return m.unknown(node, scope)


def _parameter(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    net = Net(None, "Parameter")
    net.trainable = True
    net.written, net.training = True, True
    net.frozen = kwargs.get("requires_grad", True) is False
    return net


def _leaf(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    if kwargs.get("requires_grad") is True:
        return _parameter(m, node, args, {}, scope)
    return tensors.derive(m, node, args, scope)


def _arange(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    return m.unknown(node, scope)


_TABLE = {
    _clip: ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grad_value"),
    _scaler: ("GradScaler", "ShardedGradScaler"),
    _autocast: ("autocast", "autocast_mode"),
    _context: ("nullcontext", "suppress", "profile", "record_function", "detect_anomaly",
               "set_detect_anomaly", "device", "stream", "Timer", "redirect_stdout", "catch_warnings"),
    _grad_enabled: ("set_grad_enabled",),
    _enable_grad: ("enable_grad",),
    _autograd_grad: ("grad",),
    _backward: ("backward",),
    _join: ("stack", "cat", "concat", "concatenate", "hstack", "vstack"),
    _reduce: ("mean", "sum", "div", "mul", "add", "matmul", "mm", "bmm"),
    _copy: ("deepcopy",),
    _same: ("compile", "convert_sync_batchnorm", "script", "trace", "fsdp_shard", "freeze"),
    _wrap: ("DistributedDataParallel", "DDP", "DataParallel", "FullyShardedDataParallel", "FSDP"),
    _parametrize: ("weight_norm", "spectral_norm", "remove_weight_norm", "remove_spectral_norm",
                   "register_parametrization", "orthogonal", "remove_parametrizations"),
    _optimizer_step: ("optimizer_step",),
    _exit_stack: ("ExitStack",),
    _chain: ("chain",),
    _parameter: ("Parameter",),
    _leaf: ("tensor", "zeros", "ones", "randn", "rand", "full", "zeros_like", "ones_like",
            "randn_like", "rand_like", "empty"),
    _arange: ("arange", "Generator", "manual_seed", "is_available", "isnan", "isfinite", "isinf",
              "all_reduce", "barrier", "save", "load"),
    wrappers.accelerator: ("Accelerator",),
    wrappers.fabric: ("Fabric",),
    wrappers.deepspeed: ("initialize_deepspeed",),
    wrappers.scale_loss: ("scale_loss",),
}  # fmt: skip
for _handler, _names in _TABLE.items():
    for _known in _names:
        api.CALLS[_known] = _handler


def _initialize(m: Machine, node: ast.Call, args: Values, kwargs: Named, scope: Scope) -> Value:
    if "deepspeed" in ast.unparse(node.func):
        return wrappers.deepspeed(m, node, args, kwargs, scope)
    if "amp" in ast.unparse(node.func):
        return wrappers.amp_initialize(m, node, args, kwargs, scope)
    return tensors.derive(m, node, args, scope)


api.CALLS["initialize"] = _initialize
__all__ = ["Grad", "Optimizer", "Unknown"]
