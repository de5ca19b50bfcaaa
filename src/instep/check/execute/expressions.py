"""Expressions other than calls."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from instep.check.execute import attributes, branches, numbers, tensors
from instep.check.execute.decisions import Undecided
from instep.check.execute.machine import EVALUATE, Machine, truth
from instep.check.execute.values import (
    DictValue,
    Function,
    Gate,
    Iterator,
    ListValue,
    Net,
    Param,
    Parameters,
    Tensor,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from instep.check.execute.program import Scope


def _constant(m: Machine, node: ast.Constant, scope: Scope) -> Value:
    return node.value


def _name(m: Machine, node: ast.Name, scope: Scope) -> Value:
    return m.lookup(node.id, scope)


def _attribute(m: Machine, node: ast.Attribute, scope: Scope) -> Value:
    return attributes.get(m, node, m.ev(node.value, scope), node.attr, scope)


def _tuple(m: Machine, node: ast.Tuple, scope: Scope) -> Value:
    return tuple(_elements(m, node.elts, scope)[0])


def _list(m: Machine, node: ast.List | ast.Set, scope: Scope) -> Value:
    items, exact = _elements(m, node.elts, scope)
    return ListValue(items, exact=exact, born=m.serial)


def _elements(m: Machine, nodes: list[ast.expr], scope: Scope) -> tuple[list[Value], bool]:
    items: list[Value] = []
    exact = True
    for node in nodes:
        if isinstance(node, ast.Starred):
            inner = tensors.unify(m.ev(node.value, scope))
            if isinstance(inner, tuple):
                items.extend(inner)
            elif isinstance(inner, ListValue):
                items.extend(inner.items)
                exact = exact and inner.exact
            else:
                items.append(inner)
                exact = isinstance(inner, Parameters)
        else:
            items.append(m.ev(node, scope))
    return items, exact


def _dict(m: Machine, node: ast.Dict, scope: Scope) -> Value:
    items: dict[Value, Value] = {}
    exact = True
    for key, value in zip(node.keys, node.values, strict=True):
        got = m.ev(value, scope)
        at = None if key is None else m.ev(key, scope)
        if key is None:
            exact = exact and isinstance(got, DictValue) and got.exact
            if isinstance(got, DictValue):
                items.update(got.items)
        elif isinstance(at, str | int | float | bool):
            items[at] = got
        else:
            items[f"?{len(items)}"] = got
            exact = False
    return DictValue(items, exact=exact)


def _binary(m: Machine, node: ast.BinOp, scope: Scope) -> Value:
    left, right = m.ev(node.left, scope), m.ev(node.right, scope)
    return numbers.binary(m, node, node.op, left, right, scope)


def _unary(m: Machine, node: ast.UnaryOp, scope: Scope) -> Value:
    value = m.ev(node.operand, scope)
    if isinstance(node.op, ast.Not):
        if isinstance(value, Gate):
            return Gate(not value.holds, value.every, value.literal)
        if isinstance(value, numbers.Mod):
            return Gate(value == 0, value.every, value.literal)
        found = truth(value)
        return ~found if isinstance(found, Undecided) else not found
    if isinstance(node.op, ast.USub):
        if isinstance(value, Tensor):
            return tensors.copy(m, value, node)
        plain = numbers.number(value)
        return -plain if plain is not None else m.unknown(node, scope)
    return value


def _boolean(m: Machine, node: ast.BoolOp, scope: Scope) -> Value:
    """`a or b` as a value: the first one that is not surely passed over."""
    wants = isinstance(node.op, ast.Or)
    gate: Gate | None = None
    value: Value = None
    undecided: Value = None
    for part in node.values:
        value = m.ev(part, scope)
        if isinstance(value, Gate):
            gate = value
        found = truth(value)
        if isinstance(found, Undecided):
            known = m.decisions.known(found)
            if known is None:
                undecided = undecided if undecided is not None else value
                continue
            found = known
        if found is wants:
            if gate is not None:
                return Gate(wants, gate.every, gate.literal)
            return value if undecided is None else undecided
    if undecided is not None:
        return undecided if wants or gate is None or gate.holds else gate
    return Gate(not wants, gate.every, gate.literal) if gate is not None else value


def _compare(m: Machine, node: ast.Compare, scope: Scope) -> Value:
    left = m.ev(node.left, scope)
    result: Value = True
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = m.ev(right_node, scope)
        result = numbers.compare(m, op, left, right)
        if result is False or (isinstance(result, Gate) and not result.holds):
            return result
        left = right
    return result


def _choice(m: Machine, node: ast.IfExp, scope: Scope) -> Value:
    worth = scope.module.scan.hot(node.body) or scope.module.scan.hot(node.orelse)
    prefer = not (isinstance(node.body, ast.Constant) and node.body.value is None)
    taken = branches.test(m, node.test, scope, prefer=prefer, worth=worth)
    return m.ev(node.body if taken else node.orelse, scope)


def _subscript(m: Machine, node: ast.Subscript, scope: Scope) -> Value:
    value = m.ev(node.value, scope)
    at = m.ev(node.slice, scope)
    return item(m, node, value, at, scope)


def item(m: Machine, node: ast.AST, value: Value, at: Value, scope: Scope) -> Value:
    """Return what `value[at]` stands for."""
    if isinstance(value, Unknown):
        if isinstance(value.made, Tensor | DictValue):
            return item(m, node, value.made, at, scope)
        if isinstance(at, str | int):
            name = f"[{at!r}]"
            found = value.attrs.get(name)
            if found is None:
                label = at if isinstance(at, str) else f"{value.known_as}[{at}]"
                found = Unknown(value.key + name, label, value.drawn)
                value.attrs[name] = found
            return found
        return Unknown(f"{value.key}[]", "", value.drawn)
    if isinstance(value, tuple):
        if isinstance(at, int) and -len(value) <= at < len(value):
            return value[at]
        return value if isinstance(at, slice) else m.unknown(node, scope)
    if isinstance(value, ListValue):
        return _list_item(m, node, value, at, scope)
    if isinstance(value, DictValue):
        return _dict_item(m, node, value, at, scope)
    if isinstance(value, Tensor):
        made = tensors.derive(m, node, [value], scope)
        if isinstance(made, Tensor) and isinstance(at, str):
            made.known_as = at
        return made
    if isinstance(value, Net):
        return _layer(value, at)
    if isinstance(value, Param) and value.optimizer is not None:
        return value if at == "params" else m.unknown(node, scope)
    return m.unknown(node, scope, drawn=getattr(value, "drawn", None))


def _list_item(m: Machine, node: ast.AST, value: ListValue, at: Value, scope: Scope) -> Value:
    if isinstance(at, int) and not isinstance(at, bool) and value.exact:
        if -len(value.items) <= at < len(value.items):
            return value.items[at]
    if isinstance(at, slice):
        return ListValue(value.items, exact=False, born=value.born)
    return value.items[0] if value.items else m.unknown(node, scope)


def _dict_item(m: Machine, node: ast.AST, value: DictValue, at: Value, scope: Scope) -> Value:
    if isinstance(at, str | int | float | bool) and at in value.items:
        return value.items[at]
    if not isinstance(at, str | int) and value.items:
        return next(iter(value.items.values()))
    made = m.unknown(node, scope, str(at) if isinstance(at, str) else "")
    if isinstance(at, str | int):
        made.key = f"{id(value)}[{at!r}]"
        value.items[at] = made
        value.exact = False
    return made


def _layer(net: Net, at: Value) -> Net:
    name = f"[{at!r}]" if isinstance(at, int | str) else "[]"
    found = net.attrs.get(name)
    if not isinstance(found, Net):
        found = Net(f"{net.known_as}{name}", part_of=net)
        found.training = net.training
        net.attrs[name] = found
    return found


def _slice(m: Machine, node: ast.Slice, scope: Scope) -> Value:
    return slice(None)


def _comprehension(
    m: Machine, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope
) -> Value:
    """One element stands for all, unless what is gone through is known."""
    first = node.generators[0]
    over = tensors.unify(m.ev(first.iter, scope))
    known = over.items if isinstance(over, ListValue) and over.exact else over
    inner = attributes.inner_scope(scope, node)
    if len(node.generators) == 1 and isinstance(known, tuple | list) and len(known) <= 6:
        items = []
        for element in known:
            attributes.assign(m, first.target, element, inner)
            items.append(m.ev(node.elt, inner))
        return ListValue(items, exact=not first.ifs, born=m.serial)
    for generator in node.generators:
        over = m.ev(generator.iter, inner)
        attributes.assign(m, generator.target, any_element(m, node, over, scope), inner)
    element = m.ev(node.elt, inner)
    if isinstance(element, Param):
        return Parameters(element.nets, complete=element.complete and not _filters(node))
    if isinstance(element, Net):
        return ListValue([element], exact=False, born=m.serial)
    return ListValue([element], exact=False, born=m.serial)


def _filters(node: Any) -> bool:
    tests = [test for generator in node.generators for test in generator.ifs]
    # What has no gradient or asks for none has nothing to clear or clip.
    return any("grad" not in ast.unparse(test) for test in tests)


def any_element(m: Machine, node: ast.AST, over: Value, scope: Scope) -> Value:
    """Return one element that stands for all of an iterable."""
    over = tensors.unify(over)
    if isinstance(over, Parameters):
        made = Param(over.nets, complete=over.complete)
        return (m.unknown(node, scope, "name"), made) if over.named else made
    if isinstance(over, Param):
        return over
    if isinstance(over, ListValue):
        return over.items[0] if over.items else m.unknown(node, scope)
    if isinstance(over, tuple):
        return over[0] if over else m.unknown(node, scope)
    if isinstance(over, DictValue):
        return next(iter(over.items), m.unknown(node, scope))
    if isinstance(over, Net):
        return _layer(over, None)
    if isinstance(over, Tensor):
        return tensors.derive(m, node, [over], scope)
    if isinstance(over, Iterator) and over.shape == "enumerate":
        return (m.unknown(node, scope), any_element(m, node, over.of, scope))
    if isinstance(over, Iterator) and over.shape == "zip":
        return tuple(any_element(m, node, part, scope) for part in over.of)
    drawn = over if getattr(over, "role", "") == "loader" else getattr(over, "drawn", None)
    return m.unknown(node, scope, drawn=drawn)


def _dict_comprehension(m: Machine, node: ast.DictComp, scope: Scope) -> Value:
    inner = attributes.inner_scope(scope, node)
    for generator in node.generators:
        over = m.ev(generator.iter, inner)
        attributes.assign(m, generator.target, any_element(m, node, over, scope), inner)
    return DictValue({"?": m.ev(node.value, inner)}, exact=False)


def _lambda(m: Machine, node: ast.Lambda, scope: Scope) -> Value:
    return Function(node, scope)


def _walrus(m: Machine, node: ast.NamedExpr, scope: Scope) -> Value:
    value = m.ev(node.value, scope)
    attributes.assign(m, node.target, value, scope)
    return value


def _wrapped(m: Machine, node: ast.Await | ast.Starred, scope: Scope) -> Value:
    return m.ev(node.value, scope)


def _text(m: Machine, node: ast.JoinedStr, scope: Scope) -> Value:
    return m.unknown(node, scope, "text")


EVALUATE.update(
    {
        ast.Constant: _constant,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.Tuple: _tuple,
        ast.List: _list,
        ast.Set: _list,
        ast.Dict: _dict,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.BoolOp: _boolean,
        ast.Compare: _compare,
        ast.IfExp: _choice,
        ast.Subscript: _subscript,
        ast.Slice: _slice,
        ast.ListComp: _comprehension,
        ast.GeneratorExp: _comprehension,
        ast.SetComp: _comprehension,
        ast.DictComp: _dict_comprehension,
        ast.Lambda: _lambda,
        ast.NamedExpr: _walrus,
        ast.Await: _wrapped,
        ast.Starred: _wrapped,
        ast.JoinedStr: _text,
    }
)
