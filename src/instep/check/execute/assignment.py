"""Assignment: what binding a name, an attribute or an item to a value does."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from instep.check.execute import containers, grads, layers, tensors
from instep.check.execute.arguments import REST
from instep.check.execute.definitions import Instance
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Grad, Net, Param, Parameters
from instep.check.execute.values import DictValue, Gate, ListValue, Ref, Thing, Unknown, unify

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.values import Value


def assign(m: Machine, target: ast.AST, value: Value, scope: Scope) -> None:
    """Bind a target to a value."""
    bind = _BIND.get(type(target))
    if bind is not None:
        bind(m, target, value, scope)


def step_to(m: Machine, target: ast.AST, value: Value, scope: Scope) -> None:
    """Bind the variable of a loop to what comes next; that takes nobody's place."""
    before = len(m.notes)
    assign(m, target, value, scope)
    if len(m.notes) > before:
        m.notes[before:] = [note for note in m.notes[before:] if note.kind != "rebound"]


def is_building(m: Machine) -> bool:
    """Say whether an `__init__` is running: parts of a model are put together, not replaced."""
    return any(getattr(code, "name", "") == "__init__" for code in m.stack)


def _name_it(value: Value, spelled: str) -> None:
    """Call a thing by what it is assigned to, if it has no name yet."""
    if isinstance(value, Thing):
        if not value.known_as:
            value.known_as = spelled
        made = value.made if type(value) is Unknown else None
        if made is not None and not made.known_as:
            made.known_as = spelled


def _bound(m: Machine, name: str, old: Value, value: Value, scope: Scope) -> None:
    """Take note of when a name was assigned, and whether it let go of the losses that it held."""
    scope.assigned[name] = m.serial
    if _has_graph(old) and not _has_graph(value):
        scope.emptied.setdefault(name, set()).update(m.loops)


def _has_graph(value: Value) -> bool:
    value = unify(value)
    return isinstance(value, Tensor) and value.graph


def _bind_name(m: Machine, target: ast.Name, value: Value, scope: Scope) -> None:
    name = target.id
    owner = scope.elsewhere.get(name, scope) if scope.elsewhere else scope
    old = owner.names.get(name)
    owner.names[name] = value
    if old is None:
        owner.assigned[name] = m.serial
    else:
        kind = type(value)
        if kind is Net:
            _replaced(m, target, name, old, value, scope=scope)
        elif kind is ListValue:
            _emptied(m, old, value)
        _bound(m, name, old, value, owner)
    _name_it(value, name)


def _emptied(m: Machine, old: Value, new: Value) -> None:
    """Take note of a list that a new one takes the place of: nothing stays in it for long."""
    if isinstance(old, ListValue) and isinstance(new, ListValue) and old is not new:
        old.emptied.update(m.loops)


def _replaced(
    m: Machine, node: ast.AST, name: str, old: Value, new: Value, *, scope: Scope
) -> None:
    """Take note of a model that takes the place of another one."""
    both = isinstance(old, Net) and isinstance(new, Net) and old is not new
    if both and new.written and not ((new.lineage() | new.given) & old.lineage()):
        m.note("rebound", node, scope, name=name, was=old, now=new)


def _bind_attribute(m: Machine, target: ast.Attribute, value: Value, scope: Scope) -> None:
    whole = m.ev(target.value, scope)
    owner = unify(whole)
    spelled = scope.module.spelled(target)
    if isinstance(owner, Net) and target.attr == "grad":
        owner = Param(frozenset({owner}), complete=owner.kind == "Parameter")
    if isinstance(owner, Param):
        grads.assign(m, target, owner, value, scope)
        return
    if isinstance(owner, Grad) and target.attr == "data":
        grads.write(m, target, owner, scope)
    elif isinstance(owner, Net):
        _bind_in_net(m, target, owner, value, scope)
    elif isinstance(owner, Instance):
        _replaced(m, target, spelled, owner.attrs.get(target.attr), value, scope=scope)
    elif isinstance(owner, Unknown | Tensor) and target.attr == "grad":
        grads.touch(m, target, whole, scope, writes=value is not None)
    elif isinstance(owner, Ref) and target.attr in {"step", "zero_grad"}:
        m.note("opaque", target, scope, what=spelled, values=None)  # patched for everybody
    _name_it(value, spelled)
    old = None
    if isinstance(owner, Thing):
        old = owner.attrs.get(target.attr)
        _emptied(m, old, value)
        owner.attrs[target.attr] = value
    _bound(m, spelled, old, value, scope.top())  # it outlives the call, as `self` does


def _bind_in_net(m: Machine, target: ast.Attribute, owner: Net, value: Value, scope: Scope) -> None:
    """Follow what the attributes of a model mean by themselves, and the parts it is given."""
    if target.attr == "require_backward_grad_sync":
        holds = value.holds if isinstance(value, Gate) else value
        owner.sync = holds if isinstance(holds, bool) else None
    elif target.attr == "requires_grad":
        owner.frozen = value is False
    elif target.attr == "training" and value is not False:
        owner.may_train()
    elif isinstance(value, Net) and value is not owner:
        _join(m, target, owner, value, scope)
    elif isinstance(value, Unknown):
        value.given_to = owner  # a part of it, should it turn out to be a model


def _join(m: Machine, target: ast.expr, owner: Net, value: Net, scope: Scope) -> None:
    if value.written and value.part_of is not owner:
        _exchanged(m, target, owner, value, scope)
    value.join(owner)


def _exchanged(m: Machine, target: ast.expr, owner: Net, value: Net, scope: Scope) -> None:
    """Take note that a model has another part now, unless it is just being built."""
    if not is_building(m) and layers.brings(value, owner):
        name = scope.module.spelled(target)
        m.note("rebound", target, scope, name=name, was=owner, now=value)


def _bind_item(m: Machine, target: ast.Subscript, value: Value, scope: Scope) -> None:
    owner = unify(m.ev(target.value, scope))
    at = m.ev(target.slice, scope)
    if isinstance(owner, Grad | Param):
        _bind_in_parameters(m, target, owner, at, scope)
    if isinstance(value, Thing):
        _name_it(value, scope.module.spelled(target))
    if isinstance(owner, DictValue):
        known = isinstance(at, str | int | float | bool) and at != REST
        if not known:
            containers.reset(owner)
        owner.items[at if known else "?"] = value
    elif isinstance(owner, ListValue):
        _bind_in_list(owner, at, value)
    elif isinstance(owner, Net) and isinstance(value, Net):
        owner.attrs[f"[{at!r}]"] = value
        _join(m, target, owner, value, scope)
    elif isinstance(owner, Unknown) and isinstance(at, str | int):
        owner.attrs[f"[{at!r}]"] = value
    elif _has_graph(value):
        tensors.write_into(m, owner, value, target)


def _bind_in_list(owner: ListValue, at: Value, value: Value) -> None:
    if isinstance(at, int) and owner.exact:
        if -len(owner.items) <= at < len(owner.items):
            owner.items[at] = value
    elif not isinstance(at, slice) and _has_graph(value):
        containers.put_somewhere(owner, value)


def _bind_in_parameters(
    m: Machine, target: ast.Subscript, owner: Grad | Param, at: Value, scope: Scope
) -> None:
    """Follow what is written into a gradient, or into a group of an optimizer."""
    if isinstance(owner, Grad):
        m.note("grad-edited", target, scope, param=owner.param, factor=None)
    elif owner.optimizer is not None and at == "params":  # it holds others from now on
        what = scope.module.spelled(target)
        m.note("opaque", target, scope, what=what, values=[owner.optimizer])


def _bind_starred(m: Machine, target: ast.Starred, value: Value, scope: Scope) -> None:
    assign(m, target.value, value, scope)


def _unpack(m: Machine, target: ast.Tuple | ast.List, value: Value, scope: Scope) -> None:
    whole = value
    value = unify(value)
    if isinstance(value, ListValue) and value.exact:
        value = tuple(value.items)
    if isinstance(value, Parameters) and value.named:
        value = None
    parts = target.elts
    if isinstance(value, tuple) and len(value) == len(parts) and not _is_starred(parts):
        for part, inner in zip(parts, value, strict=True):
            assign(m, part, inner, scope)
        return
    if isinstance(value, Tensor):
        for part in parts:
            assign(m, part, tensors.derive(m, target, [value], scope), scope)
        return
    is_unknown = isinstance(whole, Unknown)
    key, drawn = (whole.key, whole.drawn) if is_unknown else (str(id(whole)), None)
    for index, part in enumerate(parts):
        if isinstance(part, ast.Name):
            spelled = part.id
        else:
            spelled = scope.module.spelled(part) if isinstance(part, ast.Attribute) else ""
        assign(m, part, Unknown(f"{key}[{index}]", spelled, drawn), scope)


def _is_starred(parts: list[ast.expr]) -> bool:
    return any(isinstance(part, ast.Starred) for part in parts)


_BIND: dict[type[ast.AST], Callable[[Machine, Any, Value, Scope], None]] = {
    ast.Attribute: _bind_attribute,
    ast.List: _unpack,
    ast.Name: _bind_name,
    ast.Starred: _bind_starred,
    ast.Subscript: _bind_item,
    ast.Tuple: _unpack,
}
