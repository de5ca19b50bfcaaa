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
from instep.splits.zipped import require_unzipped

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = 8
"""More tensors of one shape and type in a list than that are not taken for columns unasked."""
CHANNELS = 4
"""The most that a first dimension of an image may have."""


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
    if (dim is not None and dim > 0) or not is_list or not batch:
        return dim is None
    if all(isinstance(one, Tensor) for one in batch):
        if dim is not None:
            _require_few(batch)
        return dim is None
    require_unzipped(batch, dim)
    return dim is None or _holds_samples(batch)


def _require_few(batch: Sequence[Tensor]) -> None:
    """Refuse tensors of which there are too many for columns.

    Two of a shape are views of the same samples, and so may a few more be. Numbers that were
    collated one by one are as many columns as there are numbers.
    """
    is_many = type(batch) is list and len(batch) > COLUMNS and batch[0].dim() > 1
    if is_many and len(set(map(_shape, batch))) == 1:
        raise _undecided(batch)


def _holds_samples(batch: Sequence[Any]) -> bool:
    """Whether structures are one sample each; SplitError if that cannot be told."""
    if not all(map(_is_record, batch)) or not all(_alike(batch[0], one) for one in batch[1:]):
        return False
    if isinstance(batch, tuple):
        # Zipped loaders give tuples of batches.
        if all(map(_is_numbered, batch)):
            raise _undecided(batch)
        return False
    # Tensors that are of different lengths in one of them are no batch, so each is a sample.
    if any(len(_lengths(one)) > 1 for one in batch):
        return True
    # In a list of one, the entry may be a batch with the epoch beside it.
    if len(batch) > 1 and all(map(_is_labelled, batch)):
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


def _is_numbered(record: Any) -> bool:
    """Whether a part has one tensor to cut, and a number or more beside it."""
    parts = [part for _, part in tree.children(record)]
    return any(map(_is_single, parts)) and len(_long(record)) == 1


def _is_labelled(record: Any) -> bool:
    """Whether what stands beside a part's only tensor to cut is the label of one sample.

    A plain number may stand beside a batch as well (an epoch, a weight). It is taken for a label
    only beside an image with its channels.
    """
    if not _is_numbered(record):
        return False
    parts = [part for _, part in tree.children(record)]
    is_row = isinstance(record, list | tuple)
    labels = parts[-1:] if is_row else [p for p in parts if p is not _long(record)[0]]
    if not all(_is_single(p) and isinstance(p, Tensor | int) for p in labels):
        return False
    (long,) = _long(record)
    is_image = isinstance(long, Tensor) and long.dim() > 2 and len(long) <= CHANNELS
    return is_image or any(isinstance(p, Tensor) for p in labels)


def _is_single(value: Any) -> bool:
    """Whether a value is one number, in a tensor or not."""
    if isinstance(value, Tensor):
        return not value.dim()
    return isinstance(value, Number) and not isinstance(value, bool)


def _long(record: Any) -> list[Tensor | PackedSequence]:
    """Return the tensors that could be cut."""
    return [leaf for _, leaf in tree.leaves(record) if _length(leaf) is not None]


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
    # A tuple of those would be refused as well.
    is_numbered = kind == "tuple" or all(map(_is_numbered, batch))
    columns = "a dict, dict(enumerate(batch))" if is_numbered else "a tuple, tuple(batch)"
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
