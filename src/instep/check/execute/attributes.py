"""Names and attributes: reading them, and what assigning to them does."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from instep.check.execute import grads, numbers, tensors
from instep.check.execute.program import Scope
from instep.check.execute.values import (
    Accelerator,
    Class,
    DictValue,
    Function,
    Grad,
    Instance,
    Iterator,
    ListValue,
    Method,
    Net,
    Optimizer,
    Param,
    Ref,
    Scheduler,
    Super,
    Tensor,
    Thing,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine

_WHOLE = frozenset({"module", "_orig_mod", "_forward_module"})
_PLAIN = re.compile(r"^(config|device|dtype|name|cfg|opt|args|hparams|step|epoch|num_|n_|is_|use_)")


def inner_scope(scope: Scope, node: ast.AST) -> Scope:
    """Return the scope of a comprehension."""
    inner = Scope(scope.module, scope, node)
    inner.cls, inner.self_value = scope.cls, scope.self_value
    return inner


def get(m: Machine, node: ast.AST, value: Value, name: str, scope: Scope) -> Value:
    """Return an attribute."""
    value = tensors.unify(value)
    if isinstance(value, Ref):
        return Ref(f"{value.path}.{name}")
    if isinstance(value, Unknown):
        return _unknown(m, value, name, scope)
    if isinstance(value, Tensor):
        return tensors.attribute(m, node, value, name, scope)
    if isinstance(value, Net) and value.kind == "Parameter" and name in {"grad", "data"}:
        return get(m, node, Param(frozenset({value})), name, scope)
    if isinstance(value, Instance | Net | Super | Class):
        return member(m, node, value, name, scope)
    if isinstance(value, Param):
        if name == "grad":
            grads.read(m, node, value, scope)
            return Grad(value)
        return value if name == "data" else m.unknown(node, scope)
    if isinstance(value, Grad):
        return value if name == "data" else m.unknown(node, scope)
    if isinstance(value, Optimizer) and name == "param_groups":
        return ListValue([Param(value.nets, optimizer=value)])
    if isinstance(value, Optimizer | Scheduler) and name == "optimizer":
        return value if isinstance(value, Optimizer) else (value.optimizer or m.unknown(node, scope))
    if isinstance(value, Accelerator) and name in {"sync_gradients", "is_sync_step"}:
        return value.syncs
    if isinstance(value, Accelerator) and name == "gradient_accumulation_steps":
        return value.steps
    if isinstance(value, Iterator | ListValue | DictValue):
        return Method(value, name)
    if isinstance(value, Thing):
        if name in value.attrs:
            return value.attrs[name]
        return Method(value, name)
    return m.unknown(node, scope)


def _unknown(m: Machine, value: Unknown, name: str, scope: Scope) -> Value:
    found = value.attrs.get(name)
    if found is None:
        spelled = f"{value.known_as}.{name}" if value.known_as else name
        found = value.attrs[name] = Unknown(f"{value.key}.{name}", spelled, value.drawn)
    return found


def member(m: Machine, node: ast.AST, value: Value, name: str, scope: Scope) -> Value:
    """Return an attribute of an object, class or model of the project."""
    if not isinstance(value, Super) and name in value.attrs:
        return value.attrs[name]
    found = find_member(value, name)
    if isinstance(found, Function):
        from instep.check.execute import calls

        return calls.bind(m, node, found, value, scope)
    if found is not None and name in _members(value):
        owner = value.cls if isinstance(value, Instance | Net) else value
        if isinstance(owner, Class) and owner.settings and not isinstance(found, Thing):
            found = Unknown(f"{id(owner.code)}.{name}", name)
        return found
    if isinstance(value, Net):
        return _of_net(m, node, value, name)
    if isinstance(value, Super):
        return Method(value, name)
    spelled = f"{value.known_as}.{name}" if value.known_as else f"self.{name}"
    made = Unknown(f"{id(value)}.{name}", spelled)
    if isinstance(value, Instance):
        made.key = f"{id(value.cls.code)}.{name}"
        made.known_as = f"self.{name}"
    value.attrs[name] = made
    return made


def _members(value: Value) -> dict[str, Value]:
    cls = value if isinstance(value, Class) else getattr(value, "cls", None)
    found: dict[str, Value] = {}
    for base in reversed(cls.mro()) if isinstance(cls, Class) else ():
        found.update(base.members)
    return found


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
    if "loss" in name.lower() and name[:1].islower():
        return m.tensor(frozenset({net}), node)
    if _PLAIN.search(name):
        made: Value = Unknown(f"{net.known_as}.{name}", f"{net.known_as}.{name}")
    else:
        made = Net(f"{net.known_as}.{name}", part_of=net)
        made.training = net.training
    net.attrs[name] = made
    return made


def assign(m: Machine, target: ast.AST, value: Value, scope: Scope) -> None:
    """Bind a target to a value."""
    if isinstance(target, ast.Name):
        _bind_name(m, target, value, scope)
    elif isinstance(target, ast.Attribute):
        _bind_attribute(m, target, value, scope)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(m, target, value, scope)
    elif isinstance(target, ast.Subscript):
        _bind_item(m, target, value, scope)
    elif isinstance(target, ast.Starred):
        assign(m, target.value, value, scope)


def name_it(value: Value, spelled: str) -> None:
    """Call a thing by what it is assigned to, if it has no name yet."""
    if isinstance(value, Thing) and not value.known_as:
        value.known_as = spelled
    if isinstance(value, Unknown) and value.made is not None and not value.made.known_as:
        value.made.known_as = spelled


def _bind_name(m: Machine, target: ast.Name, value: Value, scope: Scope) -> None:
    owner = scope.elsewhere.get(target.id, scope)
    old = owner.names.get(target.id)
    if isinstance(old, Net) and isinstance(value, Net) and old is not value:
        _rebound(m, target, target.id, old, value, scope)
    owner.names[target.id] = value
    owner.assigned[target.id] = m.serial
    if not isinstance(value, Tensor) or not value.graph:
        m.resets.setdefault((id(owner), target.id), []).append(m.serial)
    name_it(value, target.id)


def _rebound(
    m: Machine, node: ast.AST, name: str, old: Net, new: Net, scope: Scope
) -> None:
    fresh = new.written and not (new.lineage() & old.lineage())
    if fresh:
        m.note("rebound", node, scope, name=name, was=old, now=new)


def _bind_attribute(m: Machine, target: ast.Attribute, value: Value, scope: Scope) -> None:
    owner = tensors.unify(m.ev(target.value, scope))
    spelled = ast.unparse(target)
    if isinstance(owner, Net) and owner.kind == "Parameter" and target.attr == "grad":
        owner = Param(frozenset({owner}))
    if isinstance(owner, Param):
        grads.assign(m, target, owner, value, scope)
        return
    if isinstance(owner, Net):
        if target.attr == "require_backward_grad_sync":
            owner.sync = value if isinstance(value, bool) else None
            if isinstance(value, numbers.Gate):
                owner.sync = value.holds
            return
        if target.attr == "requires_grad":
            owner.frozen = value is False
        if isinstance(value, Net) and value is not owner:
            _part(m, target, owner, value, scope)
    elif isinstance(owner, Instance):
        old = owner.attrs.get(target.attr)
        if isinstance(old, Net) and isinstance(value, Net) and old is not value:
            _rebound(m, target, spelled, old, value, scope)
    name_it(value, spelled)
    if isinstance(owner, Thing):
        owner.attrs[target.attr] = value
    scope.assigned[spelled] = m.serial
    if not isinstance(value, Tensor) or not value.graph:
        m.resets.setdefault((id(scope), spelled), []).append(m.serial)


def _part(m: Machine, target: ast.Attribute, owner: Net, value: Net, scope: Scope) -> None:
    building = any(getattr(code, "name", "") == "__init__" for code in m.stack)
    if not building and value.written and value.part_of is not owner:
        name = ast.unparse(target)
        m.note("rebound", target, scope, name=name, was=owner, now=value, part=True)
    value.join(owner)


def _bind_item(m: Machine, target: ast.Subscript, value: Value, scope: Scope) -> None:
    owner = tensors.unify(m.ev(target.value, scope))
    at = m.ev(target.slice, scope)
    name_it(value, ast.unparse(target))
    if isinstance(owner, DictValue):
        known = isinstance(at, str | int | float | bool)
        owner.items[at if known else "?"] = value
        owner.exact = owner.exact and known
    elif isinstance(owner, ListValue) and isinstance(at, int) and owner.exact:
        if -len(owner.items) <= at < len(owner.items):
            owner.items[at] = value
    elif isinstance(owner, Net) and isinstance(value, Net):
        owner.attrs[f"[{at!r}]"] = value
        building = any(getattr(code, "name", "") == "__init__" for code in m.stack)
        if not building and value.written:
            name = ast.unparse(target)
            m.note("rebound", target, scope, name=name, was=owner, now=value, part=True)
    elif isinstance(owner, Unknown) and isinstance(at, str | int):
        owner.attrs[f"[{at!r}]"] = value


def _unpack(m: Machine, target: ast.Tuple | ast.List, value: Value, scope: Scope) -> None:
    whole = value
    value = tensors.unify(value)
    if isinstance(value, ListValue) and value.exact:
        value = tuple(value.items)
    if isinstance(value, Parameters_) and value.named:
        value = None
    stars = [isinstance(part, ast.Starred) for part in target.elts]
    if isinstance(value, tuple) and len(value) == len(target.elts) and not any(stars):
        for part, inner in zip(target.elts, value, strict=True):
            assign(m, part, inner, scope)
        return
    for index, part in enumerate(target.elts):
        spelled = ast.unparse(part) if isinstance(part, ast.Name | ast.Attribute) else ""
        if isinstance(value, Tensor):
            made = tensors.derive(m, target, [value], scope)
        else:
            key = whole.key if isinstance(whole, Unknown) else f"{id(whole)}"
            made = Unknown(f"{key}[{index}]", spelled, getattr(whole, "drawn", None))
        assign(m, part, made, scope)


from instep.check.execute.values import Parameters as Parameters_  # noqa: E402
