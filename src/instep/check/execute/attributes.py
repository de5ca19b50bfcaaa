"""Attributes: reading them, and finding what a class holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import containers, functions, grads, tensor_methods
from instep.check.execute.definitions import Class, Function, Instance, Super
from instep.check.execute.roles import Names
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import (
    Accelerator,
    Grad,
    Net,
    Optimizer,
    Param,
    Scaler,
    Scheduler,
)
from instep.check.execute.values import ListValue, Method, Ref, Thing, Unknown, unify

if TYPE_CHECKING:
    import ast

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.values import Value

_WHOLE = frozenset({"module", "_orig_mod", "_forward_module"})
_MODES = frozenset({"train", "eval"})
_SYNCS = frozenset({"sync_gradients", "is_sync_step"})
_SETTING = Names(r"^(config|device|dtype|name|cfg|opt|args|hparams|step|epoch|num_|n_|is_|use_)")


def get(m: Machine, node: ast.AST, value: Value, name: str, scope: Scope) -> Value:
    """Return an attribute."""
    value = unify(value)
    found: Value
    if type(value) is Ref:  # most of all: torch and its parts
        return value.member(name)
    match value:
        case Unknown():
            found = _unknown(m, node, value, name, scope)
        case Net() if name == "grad" or (name == "data" and value.kind == "Parameter"):
            found = _of_parameter(m, node, Param(frozenset({value})), name, scope)
        case Instance() | Net() | Super() | Class():
            found = member(m, node, value, name, scope)
        case Tensor():
            found = tensor_methods.attribute(m, node, value, name, scope)
        case Param() | Grad():
            found = _of_parameter(m, node, value, name, scope)
        case Thing():
            found = _of_role(m, node, value, name, scope)
        case _:
            found = m.unknown(node, scope)
    return found


def _unknown(m: Machine, node: ast.AST, value: Unknown, name: str, scope: Scope) -> Value:
    if name == "grad":
        grads.read(m, node, Param(frozenset()), scope)  # of an input that is being attacked
    found = value.attrs.get(name)
    if found is None and value.stem:
        found = _of_namesake(value, name)
    if found is None:
        spelled = f"{value.known_as}.{name}" if value.known_as else name
        found = value.attrs[name] = Unknown(f"{value.key}.{name}", spelled, value.drawn)
        found.usual = scope.module.scan.defaults.get(name, 0)
        found.whole = value
    return found


def _of_namesake(module: Unknown, name: str) -> Value:
    """Return what a class of settings has that is called as its module is: whoever imports the
    module and asks it means the class.
    """
    own = module.attrs.get(module.stem)
    return find_member(own, name) if isinstance(own, Class) else None


def _of_parameter(m: Machine, node: ast.AST, value: Param | Grad, name: str, scope: Scope) -> Value:
    if name == "grad" and isinstance(value, Param):
        grads.read(m, node, value, scope)
        grads.trained_by_hand(value)
        return Grad(value)
    return value if name == "data" else m.unknown(node, scope)


def _of_role(m: Machine, node: ast.AST, value: Thing, name: str, scope: Scope) -> Value:
    """Return an attribute that something has by its role, or was given."""
    if isinstance(value, Optimizer):
        if name == "param_groups":
            return ListValue([Param(value.nets, optimizer=value)])
        if name == "optimizer":
            return value
    elif isinstance(value, Scheduler):
        if name == "optimizer":
            return value.optimizer or m.unknown(node, scope)
    elif isinstance(value, Scaler):
        value.asked = value.asked or name == "_per_optimizer_states"
    elif isinstance(value, Accelerator):
        if name in _SYNCS:
            return value.syncs
        if name == "gradient_accumulation_steps":
            return value.steps
    return value.attrs[name] if name in value.attrs else Method(value, name)


def member(m: Machine, node: ast.AST, value: Value, name: str, scope: Scope) -> Value:
    """Return an attribute of an object, class or model of the project."""
    if name in value.attrs and not isinstance(value, Super):
        return value.attrs[name]
    found = find_member(value, name)
    if isinstance(found, Function):
        return functions.bind(m, node, found, value, scope)
    if isinstance(value, Super):
        return Method(value, name)
    owner = value if isinstance(value, Class) else value.cls
    if isinstance(found, Unknown) and value is owner and _is_enumeration(owner):
        found = value.attrs[name] = Ref(f"{owner.known_as}.{name}")
    if found is not None:
        # The class itself has its defaults as they are written; an object may have others.
        is_default = owner.settings and value is not owner and not isinstance(found, Thing)
        return containers.default(f"{id(owner.code)}.{name}", name, found) if is_default else found
    if isinstance(value, Net):
        return _of_net(m, node, value, name)
    # Every object of a class is taken to be the same.
    at, spelled = (id(owner.code), "self") if value is not owner else (id(value), value.known_as)
    made = value.attrs[name] = Unknown(f"{at}.{name}", f"{spelled}.{name}")
    return made


def _is_enumeration(cls: Class) -> bool:
    return any(base.endswith(("Enum", "Flag")) for base in cls.outside())


def find_member(value: Value, name: str) -> Value:
    """Return what the classes of a value hold under a name, or None."""
    if isinstance(value, Super):
        cls = value.of.cls if isinstance(value.of, Instance | Net) else value.of
        line = cls.mro() if isinstance(cls, Class) else []
        line = line[line.index(value.after) + 1 :] if value.after in line else []
    else:
        cls = value if isinstance(value, Class) else value.cls
        line = cls.mro() if isinstance(cls, Class) else []
    return next((base.members[name] for base in line if name in base.members), None)


def _of_net(m: Machine, node: ast.AST, net: Net, name: str) -> Value:
    if name in _WHOLE:
        return net
    if name == "training":
        return net.training if net.training is not None else Unknown(f"{id(net)}.training")
    if name in _MODES:
        return Method(net, name)
    if "loss" in name.lower() and name[:1].islower():
        return m.tensor(frozenset({net}), node)
    if name in _SETTING:
        made: Value = Unknown(f"{net.known_as}.{name}", f"{net.known_as}.{name}")
    else:
        made = Net(f"{net.known_as}.{name}", part_of=net)
        made.training = net.training
    net.attrs[name] = made
    return made
