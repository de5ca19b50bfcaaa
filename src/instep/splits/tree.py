"""Batches as trees: the tensors inside tuples, lists, dicts and dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor


def tensors(batch: Any) -> Iterator[Tensor]:
    """Yield every tensor of a batch, in order."""
    if isinstance(batch, Tensor):
        yield batch
        return
    for child in _children(batch):
        yield from tensors(child)


def renewed(batch: Any, change: Callable[[int, Tensor], Any]) -> Any:
    """Return the same structure with every tensor changed, by its number in order."""
    number = itertools.count()

    def one(value: Any) -> Any:
        return change(next(number), value) if isinstance(value, Tensor) else value

    return rebuild(batch, one)


def _children(batch: Any) -> list[Any]:
    if isinstance(batch, Mapping):
        return list(batch.values())
    if isinstance(batch, list | tuple):
        return list(batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return [getattr(batch, field.name) for field in dataclasses.fields(batch)]
    return []


def rebuild(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same structure with every part that is not a structure changed.

    A list or tuple without any tensor is one part: names and captions come that way.
    """
    if isinstance(batch, Mapping):
        changed = {key: rebuild(value, change) for key, value in batch.items()}
        if type(batch) is dict:
            return changed
        if isinstance(batch, dict):
            # Subclasses keep what they carry beside their entries: a default, an order, a name.
            same = copy.copy(batch)
            same.update(changed)
            return same
        return type(batch)(changed)  # type: ignore[call-arg]
    if isinstance(batch, list | tuple) and next(tensors(batch), None) is not None:
        children = [rebuild(child, change) for child in batch]
        return type(batch)(*children) if hasattr(batch, "_fields") else type(batch)(children)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        other = copy.copy(batch)
        for field in dataclasses.fields(batch):
            # Frozen ones, too: the copy is ours until it is returned.
            object.__setattr__(other, field.name, rebuild(getattr(batch, field.name), change))
        return other
    return change(batch)
