"""Constructors: what a class outside the project makes, judged by its name."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from instep.check.execute import layers, losses, numbers, roles, schedules, tensors
from instep.check.execute.assignment import is_building
from instep.check.execute.things import Loader, Net, Optimizer, Parameters, Scheduler
from instep.check.execute.values import ListValue, Unknown, unify
from instep.trace.pattern import pattern

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Thing, Value

_LIBRARIES = ("torchvision.models", "timm.create_model", "timm.models")
_MAKES_MODEL = frozenset({"from_pretrained", "create_model", "get_model", "build_model"})
_NO_MODEL = pattern("config|token|process|extract|feature", re.IGNORECASE)
_CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})
_MOST_TERMS = 40
_BATCH = pattern(r"batch|(^|\.)bs$", re.IGNORECASE)
_DISTRIBUTED = {
    "DistributedDataParallel": "ddp",
    "DDP": "ddp",
    "FullyShardedDataParallel": "fsdp",
    "FSDP": "fsdp",
}


@lru_cache(maxsize=4096)
def role_of(path: str) -> str | None:
    """Return the role of what a constructor makes; None if its name says nothing.

    >>> role_of("torch.optim.Adam"), role_of("torch.cat")
    ('optimizer', None)
    """
    package, _, name = path.rpartition(".")
    is_class = name[:1].isupper()
    if name in roles.LOADER_CLASS:
        return "loader"
    if name in roles.SCHEDULER_CLASS or (is_class and package in roles.SCHEDULER_MODULE):
        return "scheduler"
    if name in roles.OPTIMIZER_CLASS:
        return "optimizer"
    return "criterion" if is_class and name in roles.CRITERION_CLASS else None


def by_role(role: str, path: str, call: Call) -> Thing | None:
    """Return the thing that a constructor makes; None if its arguments do not fit."""
    if role == "loader":
        loader = Loader(None)
        size = call.get(1, "batch_size")
        loader.batch = size if isinstance(size, int) else None
        return loader
    if role == "scheduler":
        return _scheduler(path, call)
    if role == "optimizer":
        return _optimizer(path, call)
    return losses.criterion(call.name, call.kwargs, of_torch=path.startswith("torch."))


def _scheduler(path: str, call: Call) -> Scheduler | None:
    held = [unify(value) for value in call.inputs]
    optimizer = next((value for value in held if isinstance(value, Optimizer)), None)
    if optimizer is None:
        inner = next((value for value in held if isinstance(value, Scheduler)), None)
        optimizer = inner.optimizer if inner is not None else None
    if optimizer is None and not path.startswith(("torch", "transformers")):
        return None
    made = Scheduler(None, optimizer, call.name)
    made.horizon = _horizon(call.inputs)
    made.skippable = schedules.is_skippable(path, call)
    return made


def _horizon(values: list[Value]) -> str | None:
    """Say what the length of a schedule counts: updates if it was divided by a number of
    micro-batches, batches if it is that of a loader and was not.
    """
    found: str | None = None
    todo = list(values)
    for _ in range(_MOST_TERMS):
        if not todo:
            break
        value = todo.pop()
        if not isinstance(value, Unknown):
            continue
        name = value.known_as or ""
        if value.formula is not None:
            _, op, left, right, _ = value.formula
            divides = isinstance(op, ast.Div | ast.FloorDiv) and isinstance(right, Unknown)
            if divides and (right.known_as or "") in numbers.COUNTS:
                return "updates"
            if divides and _BATCH.search(right.known_as or ""):
                found = "batches"
            todo += [left, right]
        if "update" in name:
            return "updates"
        if name.startswith("len(") or "iters" in name:
            found = "batches"
    return found


def _optimizer(path: str, call: Call) -> Optimizer:
    kwargs = call.kwargs
    named = kwargs.get("params", kwargs.get("model", kwargs.get("optimizer")))
    first = call.args[0] if call.args else named
    inner = unify(first)
    if isinstance(inner, Optimizer):
        return inner  # a wrapper around an optimizer acts on the same parameters
    made = Optimizer(None, held_by([first, *call.inputs]), call.name)
    made.torch = path.startswith("torch.optim.")
    if made.nets is None:
        made.given = tensors.leaves(first)
    return made


def held_by(values: list[Value]) -> frozenset[Net] | None:
    """Return the models whose parameters an optimizer is given: in the first of its arguments, and
    perhaps in others.
    """
    held = tensors.parameters_of(values[0]) if values else None
    if held is None:
        return None
    for value in values[1:]:
        if isinstance(value, Parameters | ListValue | tuple | Net):
            held |= tensors.parameters_of(value) or frozenset()
    return held


def network(path: str, call: Call) -> Net | None:
    """Return the model that a layer or a library's function makes; None if it makes none."""
    name = call.name
    if path.startswith("torch.nn.") and name[:1].isupper():
        return _layer(call)
    if path.startswith(_LIBRARIES):
        return _model(name)
    if name in _MAKES_MODEL:
        func = getattr(call.node, "func", call.node)
        if not _NO_MODEL.search(call.scope.module.spelled(func)):
            return _model(name)
    return None


def _layer(call: Call) -> Net:
    net = _model(call.name)
    net.batchnorm = True if "BatchNorm" in call.name else None
    if any(call.kwargs.get(name) is False for name in ("affine", "elementwise_affine")):
        net.trainable = None
    _, nets, unknown = tensors.made_of(call.args)
    if call.name in _CONTAINERS:
        for value in unknown:
            if value.made is None and value.drawn is None and value.hint is None:
                value.made = Net(value.known_as)
                nets[value.made] = None
        net.trainable = None
        known = not unknown and bool(nets)
        net.modeless = known and all(part.modeless for part in nets)
    for part in nets:
        net.trainable = net.trainable or part.trainable
        part.join(net)
        net.batchnorm = net.batchnorm or part.batchnorm
    return net


def _model(name: str) -> Net:
    net = Net(None, name)
    net.written, net.training = True, True
    if name == "from_pretrained":
        net.training = False  # what is loaded by that method comes in eval mode
    net.batchnorm = True if name in roles.BATCHNORM_MODELS else None
    net.trainable = True if name in roles.TRAINABLE else None
    net.modeless = name in layers.MODELESS
    return net


def wrapped(_m: Machine, call: Call) -> Value:
    """Follow `DistributedDataParallel(model)`: the same parameters, on several devices."""
    given = call.args[0] if call.args else call.kwargs.get("module", call.kwargs.get("model"))
    net = unify(given)
    if isinstance(net, Unknown):
        net.made = made = Net(net.known_as)
        made.distributed = "ddp" if _DISTRIBUTED.get(call.name) == "ddp" else None
        return made
    if not isinstance(net, Net):
        return _model(call.name)
    net.distributed = _DISTRIBUTED.get(call.name, net.distributed)
    return net


def parameter(_m: Machine, call: Call) -> Net:
    """Follow `nn.Parameter(...)`."""
    net = Net(None, "Parameter")
    net.trainable = net.written = net.training = True
    net.frozen = call.kwargs.get("requires_grad", True) is False
    return net


def leaf(m: Machine, call: Call) -> Value:
    """Follow `torch.zeros(..., requires_grad=True)`: a parameter, if it asks to be one."""
    if call.kwargs.get("requires_grad") is True:
        made = parameter(m, call)
        if m.loops or (len(m.stack) > 1 and not is_building(m)):
            made.trainable = None  # made anew each time, so that something can be asked of an input
        return made
    return tensors.derive(m, call.node, call.args, call.scope)


def copied(m: Machine, call: Call) -> Value:
    """Follow `deepcopy(value)`."""
    value = unify(call.first)
    if isinstance(value, Net):
        made = Net(None, value.kind)
        made.cls, made.written, made.training = value.cls, True, value.training
        made.batchnorm, made.trainable = value.batchnorm, value.trainable
        made.modeless, made.settled = value.modeless, value.settled
        return made
    return call.args[0] if call.args else call.unknown(m)
