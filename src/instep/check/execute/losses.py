"""Losses: what a loss function is, and what it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import tensors
from instep.check.execute.roles import COUPLED
from instep.check.execute.things import Criterion
from instep.check.execute.values import UNEVEN

if TYPE_CHECKING:
    import ast

    from instep.check.execute.machine import Machine
    from instep.check.execute.tensors import Tensor
    from instep.check.execute.values import Value


def criterion(name: str, kwargs: dict[str, Value], *, of_torch: bool = True) -> Criterion:
    """Return a loss function from how it was made; what others' reduce to is not known.

    >>> criterion("CrossEntropyLoss", {"ignore_index": 0}).ragged
    'declared'
    """
    reduction = kwargs.get("reduction", "mean" if of_torch else None)
    if kwargs.get("size_average") is False:
        reduction = "sum"
    if kwargs.get("reduce") is False:
        reduction = "none"
    ragged = "declared" if "ignore_index" in kwargs else None
    coupled = True if name in COUPLED else None
    text = reduction if isinstance(reduction, str) else None
    return Criterion(None, name, text, ragged=ragged, coupled=coupled)


def computed(m: Machine, node: ast.AST, made: Criterion, inputs: list[Value]) -> Tensor:
    """Return what a loss function gives for these inputs."""
    found, nets, unknown = tensors.made_of(inputs)
    result = m.tensor(tensors.union(found, nets) if found or nets else None, node)
    if found and not nets and not any(tensor.graph for tensor in found):
        result.graph = False
    result.reduction = made.reduction
    result.ragged = made.ragged
    for value in unknown:
        if UNEVEN in value.attrs:
            result.ragged = True
    for tensor in found:
        if tensor.coupled:
            result.coupled = True
    if made.coupled:
        result.coupled = True
    result.kind = made.kind
    return result
