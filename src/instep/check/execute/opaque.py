"""Calls that cannot be followed: what they give, and when they may do anything to a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import tensors
from instep.check.execute.definitions import Function, Instance
from instep.check.execute.roles import ACTS, BENIGN, CLEARS, COUPLED, WRAPS, last
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Optimizer, Scaler
from instep.check.execute.values import MODELESS, Method, Unknown, unify

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value

_HARMLESS = frozenset(
    {"zeros", "zeros_like", "new_zeros", "count_nonzero", "nonzero", "flatnonzero", "zero_",
     "is_local_process_zero", "is_world_process_zero"}
)  # fmt: skip
_MOST = 60
"""Values that are looked into: lists can hold themselves."""


def unknown_call(m: Machine, name: str, call: Call, inputs: list[Value] | None = None) -> Value:
    """Call something of which only the name is known; `inputs` are its arguments by default."""
    if inputs is None:
        inputs = call.inputs
    short = last(name)
    optimizers = watch(m, short, call, inputs)
    if len(optimizers) == 1 and short in WRAPS:
        return optimizers[0]  # whatever was put around it, it acts on the same parameters
    made = tensors.derive(m, call.node, inputs, call.scope)
    if isinstance(made, Unknown) and (
        # A class of a package that is not known may have no layer that notices the mode.
        ("." in name and short[:1].isupper())
        or (call.kwargs and any(_unmodes(*item) for item in call.kwargs.items()))
    ):
        made.attrs[MODELESS] = True
    if isinstance(made, Tensor) and short in COUPLED:
        made.coupled = True
    return made


def _changes_lists(name: str) -> bool:
    """Say whether a function of torch writes into lists of tensors, such as of gradients."""
    return name.startswith("_foreach_") and name.endswith("_")


def _unmodes(name: str, value: Value) -> bool:
    """Say whether an argument of a model takes out what train mode switches on."""
    off = isinstance(value, int | float) and not value
    return ("drop" in name and off) or ("norm" in name and value == "instance")


def watch(m: Machine, name: str, call: Call, inputs: list[Value]) -> list[Optimizer]:
    """Take note of a call that is given an optimizer or a loss: their windows may be anything.

    Return the optimizers that it is given.
    """
    held = _held(inputs)
    optimizers = [value for value in held if type(value) is Optimizer]
    owners = [unify(value) for value in inputs]
    owned = [
        each
        for owner in owners
        if type(owner) is Instance
        for each in _held([*owner.attrs.values()])
    ]
    if (name in CLEARS and name not in _HARMLESS) or _changes_lists(name):
        call.note(m, "opaque", what=name, values=None)
        m.problem(f"`{name}` may clear gradients, and cannot be followed", call)
        return optimizers
    if "backward" in name:
        m.summed.update(value.ident for value in held if isinstance(value, Tensor))
    for value in held:
        if type(value) is Function and _acts(value):
            m.handed.append(call.note(m, "opaque", what=name, values=None))
            m.problem(f"`{name}` is given `{value.known_as}` and may call it at any time", call)
    given = optimizers + [value for value in owned if type(value) is Optimizer]
    if given or any(type(value) is Tensor and value.graph for value in held):
        _judge(m, name, call, held, given)
    return optimizers


def _judge(
    m: Machine, name: str, call: Call, held: list[Value], optimizers: list[Optimizer]
) -> None:
    """Say what a call may do to the optimizers and losses that it is given."""
    is_class = name[:1].isupper()
    if is_class or (name in BENIGN and "train" not in name):
        return
    if optimizers:
        call.note(m, "opaque", what=name, values=optimizers)
        m.problem(f"`{name}` takes an optimizer and cannot be followed", call)
    elif name in ACTS:
        scalers = any(isinstance(value, Scaler) for value in held)
        if scalers or "backward" in name or "optim" in name or "step" in name:
            call.note(m, "opaque", what=name, values=None)
            m.problem(f"`{name}` takes a loss and cannot be followed", call)


def _acts(function: Function) -> bool:
    """Say whether a function of the project clears or steps by its own words, and no more: one
    that goes backward as well is a loop's whole body, and judged by itself.
    """
    names = set(function.scope.module.scan.names(function.code))
    return not names.isdisjoint({"step", "zero_grad"}) and "backward" not in names


def managed(m: Machine, name: str, call: Call) -> Value:
    """Follow a framework's own `backward` or `step`: it counts micro-batches by itself."""
    m.managed = m.managed or "engine"
    m.problem(f"`{name}` goes backward or steps by itself", call)
    call.note(m, "opaque", what=name, values=None)
    return None


def _held(inputs: list[Value]) -> list[Value]:
    found: list[Value] = []
    todo = list(inputs)
    for _ in range(_MOST):
        if not todo:
            break
        value = unify(todo.pop())
        if type(value) is Method:
            value = unify(value.receiver)  # who is given `optimizer.zero_grad` may call it
        inner = tensors.inside(value)
        if inner:
            todo.extend(inner)
        else:
            found.append(value)
    return found
