"""What may be in a checkpoint: plain data and tensors, so that reading one runs nothing.

A checkpoint is read by `torch.load(weights_only=True)`. What that would refuse is refused when it
is saved, not on the day it is needed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import torch
from torch import Tensor

_MAPPINGS = (dict, OrderedDict, Counter)
_SEQUENCES = (list, tuple, set)
_VALUES = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray),
    *(torch.Size, torch.dtype, torch.device),
)
_TENSORS = (Tensor, torch.nn.Parameter)


def first_foreign(tree: Any, place: str = "", *, inside: tuple[int, ...] = ()) -> str | None:
    """Return where something is that a checkpoint cannot hold, and what it is; None if nowhere.

    >>> first_foreign({"epoch": 3, "seen": [1, (2.0, None)]})
    >>> first_foreign({"config": {"model": Exception()}}, "extra")
    "extra['config']['model'] is a builtins.Exception"

    inside: the containers around it, by identity.
    """
    kind = type(tree)
    if kind in _VALUES:
        return None
    if kind in _TENSORS:
        return _of_tensor(tree, place)
    if id(tree) in inside:
        return f"{place} contains itself"
    parts: list[tuple[str, Any]]
    if kind in _MAPPINGS:
        parts = [(f"a key of {place}", key) for key in tree]
        parts += [(f"{place}[{key!r}]", value) for key, value in tree.items()]
    elif kind in _SEQUENCES:
        parts = [(f"{place}[{index}]", value) for index, value in enumerate(tree)]
    else:
        return f"{place} is a {kind.__module__}.{kind.__qualname__}"
    inside = (*inside, id(tree))
    found = (first_foreign(value, name, inside=inside) for name, value in parts)
    return next(filter(None, found), None)


def _of_tensor(tensor: Tensor, place: str) -> str | None:
    if tensor.is_meta:
        return f"{place} is a tensor on the meta device, which has no values"
    return None


def copied(tree: Any, memo: dict[Any, Tensor] | None = None) -> Any:
    """Return the same data with every tensor copied to the host: later changes do not reach it."""
    memo = {} if memo is None else memo
    kind = type(tree)
    if kind in _TENSORS:
        if tree.layout is not torch.strided:
            return tree.detach().to("cpu", copy=True)
        # Tied weights are one tensor under two names, in the copy as well.
        key = (tree.device, tree.data_ptr(), tree.dtype, tree.shape, tree.stride())
        if not tree.numel() or key not in memo:
            memo[key] = tree.detach().to("cpu", copy=True)
        return memo[key]
    if kind in (dict, OrderedDict):
        return kind((key, copied(value, memo)) for key, value in tree.items())
    if kind is Counter:
        return Counter(tree)
    if kind in _SEQUENCES:
        return kind(copied(value, memo) for value in tree)
    return tree
