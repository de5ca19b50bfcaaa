"""Tensors: which models they came from, what they were multiplied by, how they were reduced."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import numbers
from instep.check.execute.values import (
    DictValue,
    Grad,
    ListValue,
    Net,
    Param,
    Parameters,
    Scaler,
    Tensor,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope

CUT = frozenset({"detach", "detach_", "item", "tolist", "numpy", "data", "requires_grad", "shape"})
"""What leaves the graph behind."""
SAME = frozenset(
    {"to", "cuda", "cpu", "float", "half", "double", "bfloat16", "contiguous", "clone", "squeeze",
     "view", "reshape", "type", "type_as", "unsqueeze", "requires_grad_", "flatten"}
)  # fmt: skip
"""What leaves a loss the loss it was."""


def made_of(values: Iterable[Value]) -> tuple[list[Tensor], set[Net], list[Unknown]]:
    """Return the tensors, models and unknown values inside some values."""
    tensors: list[Tensor] = []
    nets: set[Net] = set()
    unknown: list[Unknown] = []
    todo = list(values)
    for _ in range(200):
        if not todo:
            break
        value = todo.pop()
        if isinstance(value, Unknown):
            if value.made is not None:
                todo.append(value.made)
            elif value.hint is not None:
                nets |= value.hint
            unknown.append(value)
        elif isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, Net):
            nets.add(value)
        elif isinstance(value, tuple | list):
            todo.extend(value)
        elif isinstance(value, ListValue):
            todo.extend(value.items)
        elif isinstance(value, DictValue):
            todo.extend(value.items.values())
    return tensors, nets, unknown


def derive(m: Machine, node: ast.AST, inputs: Iterable[Value], scope: Scope) -> Value:
    """Return what an unknown function makes of its inputs: a tensor if a model or one goes in."""
    tensors, nets, unknown = made_of(inputs)
    drawn = next((value.drawn for value in unknown if value.drawn is not None), None)
    if not tensors and (not nets or drawn is None):
        # A function of a model alone may wrap it, or make an optimizer for it; use will tell.
        found = m.unknown(node, scope, drawn=drawn)
        found.hint = frozenset(nets) or None
        return found
    made = m.tensor(_union(tensors, nets), node)
    made.graph = made.graph and (bool(nets) or any(tensor.graph for tensor in tensors))
    made.coupled = True if any(tensor.coupled for tensor in tensors) else None
    made.sums = frozenset(
        ident for tensor in tensors for ident in (tensor.ident, *tensor.sums, *tensor.chain)
    )
    return made


def _union(tensors: Iterable[Tensor], nets: Iterable[Net] = ()) -> frozenset[Net] | None:
    found = set(nets)
    for tensor in tensors:
        if tensor.nets is None:
            return None
        found |= tensor.nets
    return frozenset(found)


def copy(m: Machine, tensor: Tensor, node: ast.AST) -> Tensor:
    """Return another tensor with everything that is known about this one."""
    made = m.tensor(tensor.nets, node)
    made.graph = tensor.graph and made.graph
    made.parts, made.weights = tensor.parts, tensor.weights
    made.reduction, made.ragged, made.coupled = tensor.reduction, tensor.ragged, tensor.coupled
    made.kind, made.scaled = tensor.kind, tensor.scaled
    made.sums = tensor.sums
    made.chain = tensor.chain | {tensor.ident}
    made.made_at = tensor.made_at
    made.known_as = tensor.known_as
    return made


def as_tensor(m: Machine, value: Value, node: ast.AST) -> Tensor | None:
    """Return a value as a tensor; an unknown one becomes one, made by nobody knows what."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Unknown):
        if value.made is None and value.formula is not None:
            at, op, left, right, scope = value.formula
            if isinstance(left, Unknown):
                left = as_tensor(m, left, at)
            elif isinstance(right, Unknown):
                right = as_tensor(m, right, at)
            made = binary(m, at, op, left, right, scope)
            value.made = made if isinstance(made, Tensor) else None
        if value.made is None:
            value.made = m.tensor(value.hint, node)
            value.made.known_as = value.known_as
        return value.made if isinstance(value.made, Tensor) else None
    if isinstance(value, Net) and value.kind == "Parameter":
        return m.tensor(frozenset({value}), node)
    return None


def binary(
    m: Machine, node: ast.AST, op: ast.operator, left: Value, right: Value, scope: Scope
) -> Value:
    """Return the value of an operation of which one side is a tensor or a gradient."""
    if isinstance(left, Grad) or isinstance(right, Grad):
        return m.unknown(node, scope)
    one = _tensor_or_none(m, left, node)
    two = _tensor_or_none(m, right, node)
    if one is None and two is None:
        return m.unknown(node, scope)
    if isinstance(op, ast.Add | ast.Sub):
        return _sum(m, node, one, two, left if one is None else right)
    if isinstance(op, ast.MatMult) and one is not None and two is not None:
        made = _merged(m, node, one, two)
        made.coupled = True if one.nets and two.nets and one.graph else None
        return made
    if isinstance(op, ast.Div) and one is not None:
        return divide(m, node, one, right, two)
    if isinstance(op, ast.Mult):
        if one is not None and two is not None:
            return _merged(m, node, one, two)
        tensor, other = (one, right) if one is not None else (two, left)
        assert tensor is not None
        return multiply(m, node, tensor, other)
    return derive(m, node, [left, right], scope)


def divide(
    m: Machine, node: ast.AST, tensor: Tensor, by: Value, other: Tensor | None = None
) -> Tensor:
    """Return a loss divided by something."""
    made = copy(m, tensor, node)
    if other is not None or _is_masked_count(by):
        # A sum over a count that the data decide: the mean over what was counted.
        if tensor.reduction == "sum":
            made.reduction, made.ragged = "mean", True
        else:
            made.parts = None
        return made
    if made.parts is not None:
        plain = isinstance(by, int | float) and not isinstance(by, bool)
        made.parts = (*made.parts, 1 / by if plain and by else (by, -1))
    return made


def multiply(m: Machine, node: ast.AST, tensor: Tensor, by: Value) -> Tensor:
    """Return a loss multiplied by something."""
    made = copy(m, tensor, node)
    if made.parts is None or tensor.reduction == "none":
        return made  # a weight per item changes nothing about how many items there are
    if isinstance(by, Unknown) and by.inverse is not None:
        made.parts = (*made.parts, (by.inverse, -1))
    elif isinstance(by, int | float) and not isinstance(by, bool):
        made.parts = (*made.parts, float(by))
    else:
        made.parts = (*made.parts, (by, 1))
    return made


def _is_masked_count(value: Value) -> bool:
    return isinstance(value, Unknown) and value.known_as == "sum()"


def _sum(
    m: Machine, node: ast.AST, one: Tensor | None, two: Tensor | None, other: Value
) -> Tensor:
    if one is None or two is None:
        tensor = one if one is not None else two
        assert tensor is not None
        made = copy(m, tensor, node)
        made.sums, made.chain = tensor.sums | {tensor.ident} | tensor.chain, frozenset()
        return made
    made = _merged(m, node, one, two)
    made.parts = common(one.parts, two.parts)
    made.weights = True
    made.reduction = one.reduction if one.reduction == two.reduction else None
    if one.reduction == "sum" or two.reduction == "sum":
        made.reduction = "sum"
    made.kind = one.kind or two.kind
    made.ragged = True if one.ragged and two.ragged else None
    # What the sum holds has gone backward before; it is made where the newest part was.
    made.made_at = two.made_at or one.made_at
    return made


def common(one: tuple[object, ...] | None, two: tuple[object, ...] | None) -> (
    tuple[object, ...] | None
):
    """Return the factor of a sum: a weight of one term alone is no normaliser, a division is.

    >>> common((0.25,), (0.25, 3.0)), common((0.25,), ())
    ((0.25,), None)
    """
    if one is None or two is None:
        return None
    divisions = [[part for part in parts if _divides(part)] for parts in (one, two)]
    if [str(part) for part in divisions[0]] != [str(part) for part in divisions[1]]:
        return None
    return tuple(divisions[0])


def _divides(part: object) -> bool:
    if isinstance(part, tuple):
        return bool(part[1] == -1)
    return isinstance(part, float | int) and 0 < part < 1 and abs(1 / part - round(1 / part)) < 1e-9


def _merged(m: Machine, node: ast.AST, one: Tensor, two: Tensor) -> Tensor:
    made = m.tensor(_union([one, two]), node)
    made.graph = made.graph and (one.graph or two.graph)
    made.coupled = True if one.coupled or two.coupled else None
    made.sums = one.sums | two.sums | one.chain | two.chain | {one.ident, two.ident}
    made.scaled = one.scaled or two.scaled
    return made


def _tensor_or_none(m: Machine, value: Value, node: ast.AST) -> Tensor | None:
    if isinstance(value, Unknown):
        return value.made if isinstance(value.made, Tensor) else None
    return as_tensor(m, value, node)


def method(
    m: Machine, node: ast.Call, tensor: Tensor, name: str, args: list[Value], scope: Scope
) -> Value:
    """Return what a method of a tensor gives, other than `backward`."""
    if name in CUT:
        return _cut(m, node, tensor, name, scope)
    if name in SAME:
        return copy(m, tensor, node) if name in {"clone"} or not tensor.graph else tensor
    if name in {"mean", "sum", "nanmean"}:
        made = copy(m, tensor, node)
        if args or node.keywords:
            made.reduction = None
        elif tensor.reduction in {None, "none"}:
            made.reduction = "sum" if name == "sum" else "mean"
        if tensor.nets == frozenset() and not tensor.graph:
            made.known_as = "sum()" if name == "sum" else None
        return made
    if name in {"div", "div_", "true_divide"} and args:
        return divide(m, node, tensor, args[0])
    if name in {"mul", "mul_"} and args:
        return multiply(m, node, tensor, args[0])
    if name in {"add", "add_"} and args and isinstance(args[0], Tensor):
        return _sum(m, node, tensor, args[0], None)
    if name in {"matmul", "mm", "bmm"} and args and isinstance(args[0], Tensor):
        return binary(m, node, ast.MatMult(), tensor, args[0], scope)
    if name in {"size", "numel", "dim", "get_device", "backward"}:
        return m.unknown(node, scope)
    return derive(m, node, [tensor, *args], scope)


def _cut(m: Machine, node: ast.AST, tensor: Tensor, name: str, scope: Scope) -> Value:
    if name in {"detach", "detach_", "data", "requires_grad"}:
        made = copy(m, tensor, node)
        made.graph, made.nets = False, frozenset()
        made.sums = made.chain = frozenset()
        return made
    return m.unknown(node, scope)


def attribute(m: Machine, node: ast.AST, tensor: Tensor, name: str, scope: Scope) -> Value:
    """Return an attribute of a tensor, or of what a model returned: `output.loss`."""
    if name in CUT:
        return _cut(m, node, tensor, name, scope)
    if name in {"grad"}:
        return m.unknown(node, scope)
    if name in {"T", "mT", "H"}:
        return tensor
    found = tensor.attrs.get(name)
    if found is None:
        found = derive(m, node, [tensor], scope)
        if isinstance(found, Tensor):
            found.known_as = name
        tensor.attrs[name] = found
    return found


def scale(m: Machine, node: ast.AST, value: Value, scaler: Scaler, scope: Scope) -> Value:
    """Return losses multiplied by a scaler's scale."""
    if isinstance(value, tuple):
        return tuple(scale(m, node, item, scaler, scope) for item in value)
    if isinstance(value, ListValue):
        items = [scale(m, node, item, scaler, scope) for item in value.items]
        return ListValue(items, exact=value.exact, born=m.serial)
    tensor = as_tensor(m, value, node)
    if tensor is None:
        return m.unknown(node, scope)
    made = copy(m, tensor, node)
    made.scaled = scaler
    return made


def parameters_of(value: Value) -> frozenset[Net] | None:
    """Return the models whose parameters a value holds; None if that is not known."""
    if isinstance(value, Unknown) and value.made is not None:
        value = value.made
    if isinstance(value, Parameters | Param):
        return value.nets
    if isinstance(value, Net):
        return frozenset({value})
    if isinstance(value, Grad):
        return value.param.nets
    if isinstance(value, tuple):
        value = ListValue(list(value))
    if isinstance(value, ListValue):
        found: set[Net] = set()
        for item in value.items:
            inner = parameters_of(item)
            if inner is None:
                return None
            found |= inner
        return frozenset(found) if value.exact or found else None
    if isinstance(value, DictValue):
        return parameters_of(value.items.get("params"))
    return None


def unify(value: Value) -> Value:
    """Return what an unknown value turned out to be, or the value itself."""
    return value.made if isinstance(value, Unknown) and value.made is not None else value


def number_of(value: Value) -> int | float | None:
    """Return a value as a number; here for the callers that know tensors only."""
    return numbers.number(value)
