"""Tensors: which models they came from, what they were multiplied by, how they were reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instep.check.execute import factors
from instep.check.execute.levels import goes_down
from instep.check.execute.things import Grad, Net, Param, Parameters
from instep.check.execute.values import SUM, DictValue, ListValue, Thing, Unknown, unify

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.things import Scaler
    from instep.check.execute.values import Value

_CONTAINERS = frozenset({tuple, list, ListValue, DictValue})
_MOST = 200
"""Values that are looked into: lists can hold themselves."""


class Tensor(Thing):
    """A tensor that may have come from models, perhaps a loss.

    `parts` are its multipliers: numbers, or (value, power) where the value is not a plain number;
    None if they are not known.
    """

    graph = True
    parts: tuple[Any, ...] | None = ()
    reduction: str | None = None
    raw = False  # it is what a model returned that was given more than an input: a loss, perhaps
    coupled: bool | None = None
    itemwise = False  # it is the sum of one loss for each item
    kind: str | None = None
    scaled: Scaler | None = None
    divisors: tuple[tuple[Value, bool], ...] = ()  # by what, and whether a sum was: a mean, perhaps
    window = False  # it is given to a window of instep's, which divides and scales
    chain: frozenset[int] = frozenset()  # the tensors it is, but for a factor
    sums: frozenset[int] = frozenset()  # the tensors that it is a sum of

    def __init__(self, ident: int, nets: frozenset[Net] | None, node: ast.AST | None) -> None:
        self.known_as = None
        self.attrs = {}
        self.ident = ident
        self.nets = nets
        self.made_at = node
        # Not above: compiled, what may be of three kinds has no value there.
        self.ragged: bool | str | None = None  # "declared": items may be ignored
        self.again: str | int | None = None  # the micro-batches that it was divided by before


def made_of(values: Iterable[Value]) -> tuple[list[Tensor], dict[Net, None], list[Unknown]]:
    """Return the tensors, models and unknown values inside some values."""
    tensors: list[Tensor] = []
    nets: dict[Net, None] = {}
    unknown: list[Unknown] = []
    todo = list(values)
    for _ in range(_MOST):
        if not todo:
            break
        value = todo.pop()
        if type(value) is Unknown:
            if value.made is not None:
                todo.append(value.made)
            elif value.hint is not None:
                nets.update(dict.fromkeys(value.hint))
            unknown.append(value)
        elif type(value) is Tensor:
            tensors.append(value)
        elif type(value) is Net:
            nets[value] = None
        elif type(value) in _CONTAINERS:
            todo.extend(inside(value))
    return tensors, nets, unknown


def inside(value: Value) -> Iterable[Value]:
    """Return what a container holds; nothing for what is none."""
    kind = type(value)
    held: Iterable[Value] = ()
    if kind is ListValue:
        held = value.items
    elif kind is DictValue:
        held = value.items.values()
    elif kind is tuple or kind is list:
        held = value
    return held


def derive(m: Machine, node: ast.AST, inputs: Iterable[Value], scope: Scope) -> Value:
    """Return what an unknown function makes of its inputs: a tensor if a model or one goes in."""
    tensors, nets, unknown = made_of(inputs)
    drawn = next((value.drawn for value in unknown if value.drawn is not None), None)
    if not tensors and (not nets or drawn is None):
        # A function of a model alone may wrap it, or make an optimizer for it; use will tell.
        found = m.unknown(node, scope, drawn=drawn)
        found.hint = frozenset(nets) or None
        return found
    made = m.tensor(union(tensors, nets), node)
    made.graph = made.graph and (bool(nets) or any(tensor.graph for tensor in tensors))
    made.coupled = any(tensor.coupled for tensor in tensors) or None
    if tensors:
        idents = [tensor.ident for tensor in tensors]
        parts = [part for tensor in tensors for part in (tensor.sums, tensor.chain) if part]
        made.sums = frozenset(idents).union(*parts)
    return made


def write_into(m: Machine, owner: Value, value: Value, node: ast.AST) -> None:
    """Write a tensor into a part of something: from then on that comes from its models, too."""
    nets = union([each for each in (unify(owner), unify(value)) if isinstance(each, Tensor)])
    if isinstance(owner, Tensor):
        owner.nets, owner.graph = nets, True
    elif type(owner) is Unknown and owner.made is None:
        owner.made = m.tensor(nets, node)
        owner.made.known_as = owner.known_as


def union(tensors: Iterable[Tensor], nets: Iterable[Net] = ()) -> frozenset[Net] | None:
    """Return the models that some tensors came from; None if one of them is not known."""
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
    made.parts = tensor.parts
    made.reduction, made.ragged, made.coupled = tensor.reduction, tensor.ragged, tensor.coupled
    made.kind, made.scaled = tensor.kind, tensor.scaled
    made.divisors = tensor.divisors
    made.raw, made.itemwise = tensor.raw, tensor.itemwise
    made.sums = tensor.sums
    made.chain = tensor.chain | {tensor.ident}
    made.made_at = tensor.made_at
    made.known_as = tensor.known_as
    return made


def is_count(value: Value) -> bool:
    """Say whether a value is how many items the data leave, as `mask.sum()` is."""
    return isinstance(value, Unknown) and value.known_as == SUM


def is_floor(value: Value) -> bool:
    """Say whether a number only keeps a count from being nothing: it changes no other."""
    return isinstance(value, int | float) and 0 < value <= 1


def as_tensor(m: Machine, value: Value, node: ast.AST) -> Tensor | None:
    """Return a value as a tensor; an unknown one becomes one, made by nobody knows what."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Unknown):
        if value.made is None and value.formula is not None:
            value.made = _recomputed(m, value.formula)
        if value.made is None:
            value.made = m.tensor(value.hint, node)
            value.made.known_as = value.known_as
            if value.known_as == SUM:
                value.made.reduction = "sum"
        return value.made if isinstance(value.made, Tensor) else None
    if isinstance(value, Net) and value.kind == "Parameter":
        return m.tensor(frozenset({value}), node)
    return None


@goes_down
def _recomputed(m: Machine, formula: tuple[Any, ...]) -> Tensor | None:
    """Return the result of an operation, now that it is known to be one on a tensor."""
    node, op, left, right, scope = formula
    if isinstance(left, Unknown):
        left = as_tensor(m, left, node)
    elif isinstance(right, Unknown):
        right = as_tensor(m, right, node)
    made = factors.binary(m, node, op, left, right, scope=scope)
    return made if isinstance(made, Tensor) else None


def leaf(value: Value) -> object:
    """Return what something that may be a parameter is known by."""
    return value.key if isinstance(value, Unknown) else value


def leaves(value: Value) -> frozenset[object]:
    """Return what in a value may be a parameter without a model, or a list of such."""
    tensors, _, unknown = made_of([value])
    return frozenset(map(leaf, (*tensors, *unknown)))


@goes_down
def parameters_of(value: Value) -> frozenset[Net] | None:
    """Return the models whose parameters a value holds; None if that is not known."""
    value = unify(value)
    found: frozenset[Net] | None = None
    match value:
        case Parameters() | Param():
            found = value.nets
        case Net():
            found = frozenset({value})
        case Grad():
            found = value.param.nets
        case DictValue():
            found = parameters_of(value.items.get("params"))
        case tuple() | ListValue():
            inner = [parameters_of(item) for item in inside(value)]
            known = [nets for nets in inner if nets is not None]
            if len(known) == len(inner):
                found = frozenset().union(*known)
            if not found and isinstance(value, ListValue) and not value.exact:
                found = None
    return found
