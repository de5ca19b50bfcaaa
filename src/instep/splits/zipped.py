"""Samples that were transposed: a list of all images beside a list of all targets.

Detection's `collate_fn=lambda batch: tuple(zip(*batch))` makes it. A piece would have to take the
same entries of each list; cutting the tensors would cut every image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from instep.errors import SplitError
from instep.splits import tree

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    Row = list[Any] | tuple[Any, ...]


def require_unzipped(batch: Sequence[Any], dim: int | None) -> None:
    """Raise for lists of one length, each with entries of a kind of its own, unless columns fit.

    >>> import torch
    >>> require_unzipped([torch.ones(5, 3), torch.ones(5)], 0)
    """
    if len(batch) < 2 or not all(map(_is_row, batch)) or len(set(map(len, batch))) != 1:
        return
    kinds = [set(map(_kind, row)) for row in batch]
    if any(len(kind) != 1 for kind in kinds) or len(set.union(*kinds)) == 1:
        return
    lengths = {
        len(leaf) for _, leaf in tree.leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()
    }
    is_even = len(lengths) == 1
    if not lengths or (dim is not None and is_even and _fits(batch, lengths)):
        return
    count = len(batch[0])
    columns = "; for columns, pass the batch as a dict, dict(enumerate(batch))" if is_even else ""
    raise SplitError(
        f"the batch is a {type(batch).__name__} of {len(batch)} lists of {count}, each of another "
        "kind: one entry per sample, as zip(*samples) makes it.",
        why="a piece is a part of each of these lists; cutting their tensors would cut every "
        "sample, and cutting the list around them would tear samples apart.",
        fix="pass collate_fn=list to the loader and split=instep.Micro(8, dim=None), and unzip the "
        f"piece in the loss function: images, targets = zip(*piece){columns}.",
        more="split",
    )


def _is_row(value: Any) -> bool:
    is_plain = isinstance(value, list | tuple) and not hasattr(value, "_fields")
    return is_plain and not isinstance(value, PackedSequence) and bool(value)


def _kind(value: Any) -> Hashable:
    """Return what an entry is, as coarsely as samples of one kind are alike."""
    if isinstance(value, Tensor):
        return value.dim()
    kinds: tuple[type, ...] = (Mapping, str, list, tuple)
    return next((kind for kind in kinds if isinstance(value, kind)), type(value))


def _fits(batch: Sequence[Row], lengths: set[int]) -> bool:
    """Whether torch's collate may have made these lists: of tensors of samples, and of texts."""
    tensors = [row for row in batch if isinstance(row[0], Tensor)]
    texts = [row for row in batch if not isinstance(row[0], Tensor)]
    if any(not row[0].dim() for row in tensors):
        return False
    return all({len(column)} == lengths for row in texts for column in _texts(row))


def _texts(row: Row) -> Sequence[Any]:
    """Return the columns of texts in a row: itself, or its entries; an empty one if it has none."""
    if isinstance(row[0], str):
        return [row]
    is_nested = all(_is_row(one) and isinstance(one[0], str) for one in row)
    return row if is_nested else [()]
