"""Functions of torch that do something to gradients or parameters, or combine tensors."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

from instep.check.execute import backward, deepspeed, grads, scalers, tensor_methods, tensors
from instep.check.execute.assignment import is_building
from instep.check.execute.loss_scale import scaler_in
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Net, Optimizer, Param, Parameters
from instep.check.execute.values import SUM, ListValue, Ref, Unknown, unify

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value


def clip(m: Machine, call: Call) -> Value:
    """Follow `clip_grad_norm_` and its kin."""
    held = call.get(0, "parameters")
    limit = call.get(1, "max_norm", call.kwargs.get("clip_value"))
    if isinstance(limit, Ref) and limit.path.endswith(".inf"):
        limit = math.inf
    inner = unify(held)
    call.note(
        m,
        "clip",
        nets=tensors.parameters_of(held),
        optimizer=inner.optimizer if isinstance(inner, Param) else None,
        by="value" if "value" in call.name else "norm",
        limit=limit if isinstance(limit, int | float) else None,
        scaled=scaler_in(limit) is not None,
    )
    return call.unknown(m, "norm")


def backward_of(m: Machine, call: Call) -> Value:
    """Follow `torch.autograd.backward(losses)`."""
    if "dist" in _spelled(call):
        m.managed = "dist_autograd"
        return None
    value = unify(call.first)
    losses = tensors.inside(value) if isinstance(value, tuple | list | ListValue) else call.args[:1]
    for loss in losses:
        tensor = tensors.as_tensor(m, loss, call.node)
        if tensor is not None:
            weight = call.get(1, "grad_tensors")
            backward.record(m, backward.weighted(m, tensor, weight, call), call)
    return None


def gradients(m: Machine, call: Call) -> Value:
    """Follow `torch.autograd.grad`."""
    found, _, _ = tensors.made_of(call.args[:1])
    for value in tensors.inside(call.get(1, "inputs")) or [call.get(1, "inputs")]:
        grads.trained_by_hand(unify(value))
    if call.kwargs.get("create_graph") is True and found:
        # A penalty on gradients goes on from here.
        return tensors.derive(m, call.node, found, call.scope)
    return call.unknown(m)


def join(m: Machine, call: Call) -> Value:
    """Follow `torch.cat` and its kin."""
    made = tensors.derive(m, call.node, call.args, call.scope)
    written = getattr(call.node, "args", ())
    if written and isinstance(written[0], ast.BinOp) and isinstance(made, Unknown):
        made = m.tensor(None, call.node)
        made.coupled = True
    pieces = call.first
    if isinstance(made, Tensor) and isinstance(pieces, ListValue) and not pieces.exact:
        found, _, _ = tensors.made_of([pieces])
        if any(t.graph for t in found) and (len(found) < 2 or not all(t.graph for t in found)):
            made.coupled = True  # one piece among others that were kept: a loss over all of them
    return made


def reduce(m: Machine, call: Call) -> Value:
    """Follow `torch.mean(loss)` as `loss.mean()`."""
    tensor = unify(call.first)
    if isinstance(tensor, Tensor):
        return tensor_methods.reduced(m, tensor, call, call.args[1:])
    made = tensors.derive(m, call.node, call.args, call.scope)
    if isinstance(made, Unknown) and call.name == "sum" and len(call.inputs) == 1:
        made.known_as = SUM
    return made


def bounded(m: Machine, call: Call) -> Value:
    """Follow `torch.clamp(mask.sum(), min=1)`: a count that is kept from being nothing is one."""
    if tensors.is_count(call.first) and tensors.is_floor(call.get(1, "min")):
        return call.first
    return tensors.derive(m, call.node, call.args, call.scope)


def parametrize(m: Machine, call: Call) -> Value:
    """Follow `weight_norm(layer)`: the layer has other parameters afterwards."""
    net = unify(call.first)
    if not isinstance(net, Net):
        return call.args[0] if call.args else call.unknown(m)
    if not is_building(m):
        written = getattr(call.node, "args", ())
        name = call.scope.module.spelled(written[0]) if written else str(net.known_as)
        call.note(m, "rebound", name=name, was=net, now=None)
    return net


def parametrize_as_it_is(m: Machine, call: Call) -> Value:
    """Follow `spectral_norm(layer)`: the layer has the same parameters afterwards, perhaps under
    other names.
    """
    return call.args[0] if call.args else call.kwargs.get("module", call.unknown(m))


def chain(m: Machine, call: Call) -> Value:
    """Follow `itertools.chain` over parameters."""
    nets = tensors.parameters_of(tuple(call.args))
    known = [unify(arg) for arg in call.args]
    if nets or (known and all(isinstance(arg, Parameters) for arg in known)):
        return Parameters(nets)
    return call.unknown(m)


def master_params(m: Machine, call: Call) -> Value:
    """Follow apex's copies of an optimizer's parameters: what happens to them happens to it."""
    optimizer = unify(call.first)
    if isinstance(optimizer, Optimizer):
        return Param(optimizer.nets, optimizer=optimizer)
    return call.unknown(m)


def nothing(m: Machine, call: Call) -> Value:
    """Follow what gives no tensor of a model."""
    return call.unknown(m)


def initialize(m: Machine, call: Call) -> Value:
    """Follow the functions called `initialize` that wrap what a loop uses."""
    spelled = _spelled(call)
    if "deepspeed" in spelled:
        return deepspeed.initialize(m, call)
    if "amp" in spelled:
        return scalers.initialize(m, call)
    return tensors.derive(m, call.node, call.args, call.scope)


def _spelled(call: Call) -> str:
    return call.scope.module.spelled(getattr(call.node, "func", call.node))
