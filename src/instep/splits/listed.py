"""Lists of samples, as a loader with `collate_fn=list` gives them, told from batches in columns.

A batch in columns has tensors whose first dimension is that of the samples; `[x, y]` is one, as
torch's own collate makes it. Cutting the tensors of a list of samples would cut every sample, and
give all of them to each piece. What may be either is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from numbers import Number
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from instep.errors import SplitError
from instep.splits import tree

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = 8
"""More tensors of one shape and type in a list than that are not taken for columns unasked."""


def is_listed(batch: Any, dim: int | None) -> bool:
    """Whether a batch is a list of samples; SplitError if it may be that or columns.

    dim=None says that it is, and any number above 0 that it is not.

    >>> import torch
    >>> x, label = torch.ones(3, 8, 8), torch.tensor(1)
    >>> is_listed([(x, label), (x, label)], 0), is_listed([torch.ones(5, 3), torch.ones(5)], 0)
    (True, False)
    """
    is_list = isinstance(batch, list | tuple) and not hasattr(batch, "_fields")
    if dim is None and not is_list:
        raise SplitError(
            f"dim=None, and the batch is a {type(batch).__name__}.",
            why="dim=None says that the batch is a list of samples, each of any structure.",
            fix="pass such a list, or leave dim out to cut tensors along their first dimension.",
            more="split",
        )
    if dim is None or dim > 0 or not is_list or not batch:
        return dim is None
    if all(isinstance(one, Tensor) for one in batch):
        # Two tensors of a shape are views of the same samples, and so may a few more be.
        if type(batch) is list and len(batch) > COLUMNS and len(set(map(_shape, batch))) == 1:
            raise _undecided(batch)
        return False
    if not all(map(_is_record, batch)) or not all(_alike(batch[0], one) for one in batch[1:]):
        return False
    if isinstance(batch, tuple):
        # Zipped loaders give tuples of batches.
        if all(map(_is_labelled, batch)):
            raise _undecided(batch)
        return False
    # Tensors that are of different lengths in one of them are no batch, so each is a sample.
    if any(len(_lengths(one)) > 1 for one in batch) or all(map(_is_labelled, batch)):
        return True
    raise _undecided(batch)


def _is_record(value: Any) -> bool:
    """Whether a part of a batch is a structure with tensors."""
    is_structure = isinstance(value, Mapping | list | tuple) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )
    is_record = is_structure and not isinstance(value, PackedSequence)
    return is_record and next(tree.leaves(value), None) is not None


def _alike(one: Any, other: Any) -> bool:
    """Whether two parts have one structure; what is missing in a sample may be anything."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dim() == other.dim()
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return not any(isinstance(part, Mapping | list | tuple) for part in (one, other))


def _is_labelled(record: Any) -> bool:
    """Whether a part has one tensor to cut, and a number or more beside it: a sample's label."""
    parts = [part for _, part in tree.children(record)]
    numbers = [p for p in parts if (isinstance(p, Tensor) and not p.dim()) or _is_number(p)]
    tensors = [leaf for _, leaf in tree.leaves(record)]
    return bool(numbers) and len([leaf for leaf in tensors if _length(leaf) is not None]) == 1


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) and not isinstance(value, Tensor)


def _lengths(record: Any) -> set[int]:
    found = (_length(leaf) for _, leaf in tree.leaves(record))
    return {length for length in found if length is not None}


def _length(leaf: Tensor | PackedSequence) -> int | None:
    if isinstance(leaf, PackedSequence):
        return int(leaf.batch_sizes[0])
    return leaf.size(0) if leaf.dim() else None


def _shape(tensor: Tensor) -> Any:
    # Nested tensors have no shape; they hold several samples each.
    return id(tensor) if tensor.is_nested else (tensor.shape, tensor.dtype)


def _undecided(batch: Sequence[Any]) -> SplitError:
    kind = "list" if isinstance(batch, list) else "tuple"
    columns = "a tuple, tuple(batch)" if kind == "list" else "a dict"
    return SplitError(
        f"the batch is a {kind} of {len(batch)} {type(batch[0]).__name__}s: samples, or columns?",
        why="of samples, a piece is a part of the list; of columns, every tensor in it is cut "
        "along its first dimension. Nothing here tells which is meant.",
        fix="pass split=instep.Micro(8, dim=None) for a list of samples; for columns, pass the "
        f"batch as {columns}.",
        more="split",
    )


def shapes_listed(batch: Sequence[Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Return type and largest shape of every tensor that all samples have; of others, their sizes.

    >>> import torch
    >>> shapes_listed([(torch.ones(3, 9), 1), (torch.ones(4, 2), 0)])
    [('float32', (4, 9))]
    """
    samples = [list(tree.tensors(sample)) for sample in batch]
    found: list[tuple[str, tuple[int, ...]]] = []
    for each in zip(*samples, strict=False):
        dtype = str(each[0].dtype).removeprefix("torch.")
        if any(t.is_nested or t.dim() != each[0].dim() for t in each):
            found.append((dtype, (max(t.numel() for t in each),)))
        else:
            found.append((dtype, tuple(map(max, zip(*(t.shape for t in each), strict=True)))))
    return found
