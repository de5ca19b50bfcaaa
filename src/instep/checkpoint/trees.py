"""Nested states taken apart into tensors with names and the rest, and put together again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

# Stands for a tensor in what is left: no string of a user's own begins so.
MARK = "\0tensor:"


def split(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    r"""Return the tree with marks instead of tensors, and the tensors under their places.

    >>> import torch
    >>> rest, tensors = split({"a": [torch.ones(1), 2]})
    >>> rest, list(tensors)
    ({'a': ['\x00tensor:a.0', 2]}, ['a.0'])
    >>> join(rest, tensors)
    {'a': [tensor([1.]), 2]}
    """
    tensors: dict[str, Tensor] = {}
    return _split(tree, "", tensors), tensors


def _split(tree: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        # Names with dots in them may lead to the same place.
        while place in tensors:
            place += "'"
        tensors[place] = tree
        return MARK + place
    if type(tree) in (dict, OrderedDict):
        parts = ((key, _split(value, _inside(place, key), tensors)) for key, value in tree.items())
        return type(tree)(parts)
    if type(tree) in (list, tuple):
        return type(tree)(_split(v, _inside(place, i), tensors) for i, v in enumerate(tree))
    return tree


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
