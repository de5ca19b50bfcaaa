"""Objects of the project's classes: how they are made, and what `super()` is."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import attributes, constructors, functions, layers, tensors
from instep.check.execute.definitions import Class, Function, Instance, Super
from instep.check.execute.roles import OPTIMIZER_CLASS, is_module_base, last
from instep.check.execute.things import Net, Optimizer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.values import Thing, Value


def construct(m: Machine, cls: Class, call: Call) -> Value:
    """Make an object of a class of the project."""
    made = blank(cls, call.inputs)
    if isinstance(made, Optimizer):
        made.node, made.module = call.node, call.scope.module
        call.note(m, "made", thing=made)
        return made
    initial = attributes.find_member(made, "__init__")
    if isinstance(initial, Function) and (not isinstance(made, Net) or _trains(cls)):
        functions.invoke(m, functions.bound_to(initial, made), call)
    elif cls.settings:
        _fill(cls, made, call)
    return made


def _fill(cls: Class, made: Thing, call: Call) -> None:
    """Give a dataclass its fields."""
    fields = [
        part.target.id
        for part in cls.code.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    ]
    made.attrs.update(zip(fields, call.args, strict=False))
    made.attrs.update(call.kwargs)


def _trains(cls: Class) -> bool:
    """Say whether events happen in a class, so that its attributes matter."""
    return any(base.scope.module.scan.hot(base.code) for base in cls.mro()) or any(
        "Lightning" in name for name in cls.outside()
    )


def blank(cls: Class, inputs: Iterable[Value] = ()) -> Thing:
    """Return a new object of a class, before its `__init__`."""
    outside = cls.outside()
    if any(is_module_base(name) for name in outside):
        net = Net(None, str(cls.known_as))
        net.cls, net.written, net.training = cls, True, True
        net.batchnorm, net.trainable = layers.of_class(cls)
        given = tensors.made_of(inputs)[1]
        modeless = not net.batchnorm and all(part.modeless for part in given)
        net.modeless = modeless and layers.is_modeless(cls)
        net.settled = layers.is_settled(cls)
        net.given = frozenset(given)
        return net
    if any(last(name) in OPTIMIZER_CLASS for name in outside):
        held = constructors.held_by(list(inputs))
        made = Optimizer(None, held, str(cls.known_as))
        made.is_own = any("step" in base.members for base in cls.mro())
        return made
    return Instance(cls)


def super_(m: Machine, call: Call) -> Value:
    """Follow `super()`."""
    current: Scope | None = call.scope
    while current is not None and current.cls is None:
        current = current.outer
    if current is None or current.cls is None:
        return call.unknown(m)
    holder: Scope | None = call.scope
    while holder is not None and holder.self_value is None:
        holder = holder.outer
    return Super(holder.self_value if holder is not None else current.cls, current.cls)
