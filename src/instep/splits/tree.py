"""Batches as trees: the tensors inside tuples, lists, dicts, dataclasses and what is like them."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


def tensors(batch: Any) -> Iterator[Tensor]:
    """Yield every tensor of a batch, in order."""
    for _, leaf in leaves(batch):
        yield leaf if isinstance(leaf, Tensor) else leaf.data


def leaves(batch: Any, name: str = "") -> Iterator[tuple[str, Tensor | PackedSequence]]:
    """Yield what holds samples, in order, each under the key or field that it stands in."""
    if isinstance(batch, Tensor | PackedSequence):
        yield name, batch
        return
    for key, child in children(batch, name):
        yield from leaves(child, key)


def renewed(batch: Any, change: Callable[[int, Tensor], Any]) -> Any:
    """Return the same structure with every tensor changed, by its number in order."""
    number = itertools.count()

    def one(value: Any) -> Any:
        return change(next(number), value) if isinstance(value, Tensor) else value

    return rebuild(batch, one)


def objects(batch: Any) -> Iterator[Any]:
    """Yield everything else that a batch holds."""
    if isinstance(batch, Tensor | PackedSequence):
        return
    parts = children(batch)
    if not parts:
        yield batch
    for _, child in parts:
        yield from objects(child)


def children(batch: Any, name: str = "") -> list[tuple[str, Any]]:
    """Return the parts of a structure by their keys; those of a sequence are under its name."""
    if isinstance(batch, Mapping):
        return [(str(key), value) for key, value in batch.items()]
    if isinstance(batch, list | tuple):
        fields = getattr(batch, "_fields", None) or [name] * len(batch)
        return list(zip(fields, batch, strict=True))
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        names = [field.name for field in dataclasses.fields(batch)]
        return [(field, getattr(batch, field)) for field in names]
    return []


def rebuild(
    batch: Any, change: Callable[[Any], Any], is_whole: Callable[[Any], bool] = lambda _: False
) -> Any:
    """Return the same structure with every part that is not a structure changed.

    A list or tuple without any tensor is one part: names and captions come that way. So is one that
    `is_whole` says it of.
    """
    # A packed sequence is a named tuple, whose fields mean nothing one without the other.
    if isinstance(batch, Tensor | PackedSequence):
        return change(batch)
    if isinstance(batch, Mapping):
        return _rebuilt_mapping(batch, change, is_whole)
    if isinstance(batch, list | tuple) and _holds_tensors(batch) and not is_whole(batch):
        children = [rebuild(child, change, is_whole) for child in batch]
        return type(batch)(*children) if hasattr(batch, "_fields") else type(batch)(children)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        other = copy.copy(batch)
        for field in dataclasses.fields(batch):
            value = rebuild(getattr(batch, field.name), change, is_whole)
            # Frozen ones, too: the copy is ours until it is returned.
            object.__setattr__(other, field.name, value)
        return other
    return change(batch)


def _holds_tensors(batch: list[Any] | tuple[Any, ...]) -> bool:
    # The first look is for the usual batch: this is asked once per piece.
    return type(batch[0] if batch else None) is Tensor or next(tensors(batch), None) is not None


def _rebuilt_mapping(
    batch: Mapping[Any, Any], change: Callable[[Any], Any], is_whole: Callable[[Any], bool]
) -> Any:
    changed = {key: rebuild(value, change, is_whole) for key, value in batch.items()}
    if type(batch) is dict:
        return changed
    if isinstance(batch, dict):
        # Subclasses keep what they carry beside their entries: a default, an order, a name. Entry
        # by entry, because some (transformers' ModelOutput) refuse update().
        same = copy.copy(batch)
        for key, value in changed.items():
            same[key] = value
        return same
    if isinstance(batch, UserDict):
        # What stands beside the entries may have one element per sample as well, as the encodings
        # of a tokenizer do.
        other = copy.copy(batch)
        for name, value in vars(batch).items():
            if name != "data":
                setattr(other, name, rebuild(value, change, is_whole))
        other.data = changed
        return other
    return type(batch)(changed)  # type: ignore[call-arg]
