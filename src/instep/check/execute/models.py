"""Models: what calling them and their methods does."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import (
    attributes,
    calls,
    factors,
    functions,
    grads,
    layers,
    lightning,
    opaque,
    optimizers,
    subscripts,
    tensors,
)
from instep.check.execute.arguments import Call
from instep.check.execute.definitions import Function
from instep.check.execute.levels import goes_down
from instep.check.execute.roles import CRITERION, CRITERION_CLASS
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Parameters
from instep.check.execute.values import Context, Gate, ListValue, unify

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module
    from instep.check.execute.things import Net
    from instep.check.execute.values import Value

_TRAINING = frozenset({"backward", "zero_grad", "manual_backward"})
NET_METHODS = frozenset(
    {"train", "eval", "parameters", "named_parameters", "zero_grad", "to", "cuda", "cpu", "half",
     "float", "double", "bfloat16", "requires_grad_", "no_sync", "state_dict", "load_state_dict",
     "forward", "__call__", "modules", "children", "named_modules", "apply", "compile", "backward",
     "step", "register_buffer", "gradient_checkpointing_enable", "share_memory"}
)  # fmt: skip
"""Methods that a model has without its class saying so."""


def method(m: Machine, value: Net, call: Call) -> Value:
    """Call a method of a model."""
    handler = _METHODS.get(call.name, _other)
    return handler(m, value, call)


def forward(m: Machine, value: Net, call: Call) -> Value:
    """Call a model."""
    if value.cls is not None:
        own = attributes.find_member(value, "forward")
        if isinstance(own, Function) and (_trains(own) or _is_loss(value)):
            bound = functions.bind(m, call.node, own, value, call.scope)
            made = functions.invoke(m, bound, Call(call.node, call.scope, args=call.inputs))
            if isinstance(made, Tensor) and made.nets is not None and value.trainable:
                made.nets |= {value}  # it has parameters of its own
            return _unweighted(made)
        module = value.cls.scope.module
        if module.read(_has_one_that_trains, module.tree):
            call.note(m, "opaque", what=call.name, values=None)  # it may be one of its layers
    if any("backprop" in name or "backward" in name for name in call.kwargs):
        call.note(m, "opaque", what=call.name, values=None)  # it is asked to go backward by itself
    if not m.no_grad:
        sync = value.sync if value.spread_over() is not None else None
        notices = layers.notices_mode(value, call.scope.module)
        training = value.training if notices else None
        call.note(m, "forward", net=value, training=training, sync=sync)
    return _through(m, call.node, value, call.inputs)


def _is_loss(value: Net) -> bool:
    """Say whether a model is a loss, and is followed for how it reduces and divides."""
    return str(value.kind) in CRITERION_CLASS or str(value.kind) in CRITERION


@goes_down
def _unweighted(value: Value) -> Value:
    """Return a loss without the weights that it gives its terms: they are no normalisers."""
    if isinstance(value, tuple):
        return tuple(_unweighted(part) for part in value)
    if isinstance(value, Tensor) and value.parts is not None:
        value.parts = tuple(part for part in value.parts if factors.divides(part))
    return value


def _trains(function: Function) -> bool:
    """Say whether a `forward` does more than that."""
    names = function.scope.module.scan.names(function.code)
    return not _TRAINING.isdisjoint(names)


def _has_one_that_trains(tree: ast.Module, module: Module) -> bool:
    """Say whether a class of a module goes backward when it is called."""
    return any(
        isinstance(part, ast.FunctionDef)
        and part.name == "forward"
        and not _TRAINING.isdisjoint(module.scan.names(part))
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for part in node.body
    )


def _through(m: Machine, node: ast.AST, value: Net, inputs: list[Value]) -> Tensor:
    """Return what a model makes of its inputs."""
    found, nets, _ = tensors.made_of(inputs)
    made = m.tensor(frozenset() if value.frozen else frozenset({value}), node)
    if made.graph and made.nets is not None:
        before = [tensor for tensor in found if tensor.graph and tensor.nets is not None]
        made.nets = tensors.union(before, {*made.nets, *nets})
    if value.frozen and not any(tensor.graph for tensor in found):
        made.graph = False
    made.coupled = any(tensor.coupled for tensor in found) or None
    made.raw = len(inputs) > 1  # with the targets it returns a loss
    return made


def _mode(m: Machine, value: Net, call: Call) -> Value:
    chosen = call.get(0, "mode", default=True)
    own = attributes.find_member(value, "train") if value.cls is not None else None
    # A `train` that trains is no switch, and `eval` is nothing but `train(False)`.
    trains = isinstance(own, Function) and _trains(own)
    if trains or (call.name == "train" and not isinstance(chosen, bool | Gate)):
        value.forget_mode()
        return value
    training = call.name == "train" and chosen is not False
    if training:
        value.may_train()
    for part in value.inside():
        part.training = training
        part.settled = part.settled and not training
    value.evaluated = value.evaluated or not training
    call.note(m, "mode", net=value, training=training)
    return value


def _parameters(_m: Machine, value: Net, call: Call) -> Value:
    return Parameters(frozenset({value}), named=call.name == "named_parameters")


def _zero(m: Machine, value: Net, call: Call) -> Value:
    optimizers.zero(m, call, net=value)
    return None


def _same(_m: Machine, value: Net, _call: Call) -> Value:
    return value


def _apply(m: Machine, value: Net, call: Call) -> Value:
    """Follow `apply(function)`, which is called with each layer: it may put them into a mode, or
    clear them.
    """
    function = unify(call.first)
    if isinstance(function, Function):
        names = function.scope.module.scan.names(function.code)
        if "train" in names:
            value.forget_mode()
        if "zero_grad" in names:
            calls.call(m, function, Call(call.node, call.scope, args=[value]))
    return value


def _freeze(_m: Machine, value: Net, call: Call) -> Value:
    value.frozen = call.get(0, "requires_grad", default=True) is False
    return value


def _no_sync(_m: Machine, value: Net, _call: Call) -> Value:
    return without_sync(value, sync=False)


def without_sync(value: Net, *, sync: bool | None) -> Context:
    """Return a context in which ranks do not talk, if `sync` is False; None: it is not known."""

    def enter() -> None:
        value.sync = sync

    def leave() -> None:
        value.sync = True

    return Context(enter, leave)


def _parts(m: Machine, value: Net, call: Call) -> Value:
    part: Value = subscripts.part(value)
    if "named" in call.name or call.name == "items":
        part = (call.unknown(m, "name"), part)
    return ListValue([part], exact=False)


def _engine(m: Machine, value: Net, call: Call) -> Value:
    """Follow `backward` and `step` of a model: it is an engine."""
    if call.name == "backward" and not call.args:
        return _other(m, value, call)
    return opaque.managed(m, str(value.known_as), call)


def _load(m: Machine, value: Net, call: Call) -> Value:
    for part in value.inside():
        part.loaded = True
    return call.unknown(m)


def _nothing(m: Machine, _value: Net, call: Call) -> Value:
    return call.unknown(m)


def _resized(m: Machine, value: Net, call: Call) -> Value:
    same = value.lineage() | value.inside()  # `model.module` has the embeddings of `model`
    if m.tokens > max(m.resized.get(net, 0) for net in same):
        m.resized[value] = m.tokens
        call.note(m, "rebound", name=f"{value.known_as}.embeddings", was=value, now=None)
    # or else they have that size already, and stay
    return call.unknown(m)


def _other(m: Machine, value: Net, call: Call) -> Value:
    if call.name in lightning.METHODS:
        return lightning.method(m, value, call)
    if call.name in grads.MOVES and grads.is_moved(m, value):
        return value
    opaque.watch(m, call.name, call, call.inputs)
    return _through(m, call.node, value, call.inputs)


_TABLE: dict[Callable[[Machine, Net, Call], Value], tuple[str, ...]] = {
    forward: ("__call__", "forward"),
    _mode: ("train", "eval"),
    _parameters: ("parameters", "named_parameters", "trainable_parameters"),
    _zero: ("zero_grad",),
    _same: ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "share_memory", "module",
            "clone"),
    _apply: ("apply",),
    _freeze: ("requires_grad_",),
    _no_sync: ("no_sync", "set_requires_gradient_sync"),
    _parts: ("modules", "children", "named_modules", "named_children", "items", "values"),
    _engine: ("backward", "step"),
    _load: ("load_state_dict",),
    _nothing: ("state_dict", "register_buffer", "get_scale", "is_enabled"),
    _resized: ("resize_token_embeddings",),
}  # fmt: skip
_METHODS = {name: handler for handler, names in _TABLE.items() for name in names}
