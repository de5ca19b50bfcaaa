"""Nested states taken apart into tensors with names and the rest, and put together again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

# Stands for a tensor in what is left: no string of a user's own begins so.
MARK = "\0tensor:"


def split(tree: Any, place: str = "") -> tuple[Any, dict[str, Tensor]]:
    r"""Return the tree with marks instead of tensors, and the tensors under their places.

    >>> import torch
    >>> rest, tensors = split({"a": [torch.ones(1), 2]})
    >>> rest, list(tensors)
    ({'a': ['\x00tensor:a.0', 2]}, ['a.0'])
    >>> join(rest, tensors)
    {'a': [tensor([1.]), 2]}
    """
    if isinstance(tree, Tensor):
        return MARK + place, {place: tree}
    tensors: dict[str, Tensor] = {}
    if type(tree) in (dict, OrderedDict):
        rest = type(tree)()
        for key, value in tree.items():
            rest[key], found = split(value, _inside(place, key))
            tensors.update(found)
        return rest, tensors
    if type(tree) in (list, tuple):
        pairs = [split(value, _inside(place, index)) for index, value in enumerate(tree)]
        for _, found in pairs:
            tensors.update(found)
        return type(tree)(rest for rest, _ in pairs), tensors
    return tree, tensors


def _inside(place: str, key: object) -> str:
    return f"{place}.{key}" if place else str(key)


def join(rest: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Put the tensors back where their marks are."""
    if isinstance(rest, str) and rest.startswith(MARK):
        return tensors[rest.removeprefix(MARK)]
    if type(rest) in (dict, OrderedDict):
        return type(rest)((key, join(value, tensors)) for key, value in rest.items())
    if type(rest) in (list, tuple):
        return type(rest)(join(value, tensors) for value in rest)
    return rest
