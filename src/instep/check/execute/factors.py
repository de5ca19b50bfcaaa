"""Arithmetic on losses: what they are divided and multiplied by, and what sums of them are."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import tensors
from instep.check.execute.loss_scale import scaler_in
from instep.check.execute.things import Grad
from instep.check.execute.values import SUM, Unknown

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.tensors import Tensor
    from instep.check.execute.values import Value


def binary(
    m: Machine, node: ast.AST, op: ast.operator, left: Value, right: Value, *, scope: Scope
) -> Value:
    """Return the value of an operation of which one side is a tensor or a gradient."""
    if isinstance(left, Grad) or isinstance(right, Grad):
        return m.unknown(node, scope)
    one = _tensor_or_none(m, left, node)
    two = _tensor_or_none(m, right, node)
    made: Tensor | None = None
    if one is not None and two is not None:
        made = _of_two(m, node, op, one, two)
    elif one is not None:
        made = _of_one(m, node, op, one, right)
    elif two is None:
        return m.unknown(node, scope)
    elif not isinstance(op, ast.Div):
        made = _of_one(m, node, op, two, left)
    return made if made is not None else tensors.derive(m, node, [left, right], scope)


def _of_two(m: Machine, node: ast.AST, op: ast.operator, one: Tensor, two: Tensor) -> Tensor | None:
    match op:
        case ast.Add() | ast.Sub():
            return add(m, node, one, two)
        case ast.Div():
            return divide(m, node, one, two)
        case ast.Mult():
            return _merged(m, node, one, two)
        case ast.MatMult():
            made = _merged(m, node, one, two)
            made.coupled = True if one.nets and two.nets and one.graph else None
            return made
    return None


def _of_one(
    m: Machine, node: ast.AST, op: ast.operator, tensor: Tensor, by: Value
) -> Tensor | None:
    match op:
        case ast.Add() | ast.Sub():
            made = tensors.copy(m, tensor, node)
            made.sums = tensor.sums | {tensor.ident} | tensor.chain
            made.chain = frozenset()
            return made
        case ast.Div():
            return divide(m, node, tensor, by)
        case ast.Mult():
            return multiply(m, node, tensor, by)
    return None


def _tensor_or_none(m: Machine, value: Value, node: ast.AST) -> Tensor | None:
    if isinstance(value, Unknown):
        return value.made if isinstance(value.made, tensors.Tensor) else None
    return tensors.as_tensor(m, value, node)


def divide(m: Machine, node: ast.AST, tensor: Tensor, by: Value) -> Tensor:
    """Return a loss divided by something."""
    made = tensors.copy(m, tensor, node)
    made.itemwise = False  # by the number of items, for all that is known
    if isinstance(by, tensors.Tensor) or (isinstance(by, Unknown) and by.known_as == SUM):
        # A sum over a count that the data decide: the mean over what was counted.
        if tensor.reduction == "sum":
            made.reduction, made.ragged = "mean", True
        else:
            made.parts = None
        return made
    made.divisors = (*tensor.divisors, (by, bool(tensor.sums)))
    if made.parts is not None:
        plain = isinstance(by, int | float) and not isinstance(by, bool)
        made.parts = (*made.parts, 1 / by if plain and by else (by, -1))
    return made


def multiply(m: Machine, node: ast.AST, tensor: Tensor, by: Value) -> Tensor:
    """Return a loss multiplied by something."""
    made = tensors.copy(m, tensor, node)
    scaler = scaler_in(by)
    if scaler is not None:
        made.scaled = scaler  # by hand, as `scaler.scale` does it
        return made
    if made.parts is None or tensor.reduction == "none":
        return made  # a weight per item changes nothing about how many items there are
    if isinstance(by, Unknown) and by.inverse is not None:
        made.divisors = (*tensor.divisors, (by.inverse, bool(tensor.sums)))
        made.parts = (*made.parts, (by.inverse, -1))
    elif isinstance(by, int | float) and not isinstance(by, bool):
        made.parts = (*made.parts, float(by))
    else:
        made.parts = (*made.parts, (by, 1))
    return made


def add(m: Machine, node: ast.AST, one: Tensor, two: Tensor) -> Tensor:
    """Return the sum of two losses."""
    made = _merged(m, node, one, two)
    made.parts = common(one.parts, two.parts)
    made.divisors = tuple(each for each in one.divisors if each in two.divisors)
    made.reduction = one.reduction if one.reduction == two.reduction else None
    if one.reduction == "sum" or two.reduction == "sum":
        made.reduction = "sum"
    made.kind = one.kind or two.kind
    made.itemwise = one.itemwise or two.itemwise
    made.ragged = (one.ragged and two.ragged) or None
    # What the sum holds has gone backward before; it is made where the newest part was.
    made.made_at = two.made_at or one.made_at
    return made


def common(
    one: tuple[object, ...] | None, two: tuple[object, ...] | None
) -> tuple[object, ...] | None:
    """Return the factor of a sum: a weight of one term alone is no normaliser, a division is.

    >>> common((0.25,), (0.25, 3.0)), common((0.25,), ())
    ((0.25,), None)
    """
    if one is None or two is None:
        return None
    divisions = [[part for part in parts if divides(part)] for parts in (one, two)]
    if [str(part) for part in divisions[0]] != [str(part) for part in divisions[1]]:
        return None
    return tuple(divisions[0])


def divides(part: object) -> bool:
    """Say whether a multiplier is a division by a whole number, or by something unknown.

    >>> divides(0.25), divides(0.3), divides((None, -1))
    (True, False, True)
    """
    if isinstance(part, tuple):
        return bool(part[1] == -1)
    return isinstance(part, float | int) and 0 < part < 1 and abs(1 / part - round(1 / part)) < 1e-9


def _merged(m: Machine, node: ast.AST, one: Tensor, two: Tensor) -> Tensor:
    made = m.tensor(tensors.union([one, two]), node)
    made.graph = made.graph and (one.graph or two.graph)
    made.coupled = True if one.coupled or two.coupled else None
    made.sums = one.sums | two.sums | one.chain | two.chain | {one.ident, two.ident}
    made.scaled = one.scaled or two.scaled
    return made
