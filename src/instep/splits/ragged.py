"""Samples of different lengths in one object: packed sequences and jagged nested tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import PackedSequence

from instep.errors import SplitError

if TYPE_CHECKING:
    from torch import Tensor


def packed_lengths(packed: PackedSequence) -> list[int]:
    """Return the length of every sequence, in the order the user gave them in."""
    sizes = packed.batch_sizes
    ranks = torch.arange(int(sizes[0]))
    lengths = (sizes.unsqueeze(1) > ranks).sum(0)
    if packed.unsorted_indices is not None:
        lengths = lengths[packed.unsorted_indices.cpu()]
    return [int(length) for length in lengths]


def cut_packed(packed: PackedSequence, part: slice) -> PackedSequence:
    """Return some of the sequences, packed again; they are counted in the user's order.

    Inside, sequences are sorted by length, longest first, and stored step by step: step t holds the
    first `batch_sizes[t]` of them. A selection of sorted sequences is sorted, so that gathering
    their entries of each step packs them.
    """
    data, sizes, order, inverse = packed
    ranks = torch.arange(part.start, part.stop) if inverse is None else inverse[part].cpu()
    chosen, places = ranks.sort()
    is_there = chosen.unsqueeze(0) < sizes.unsqueeze(1)
    starts = torch.cumsum(sizes, 0) - sizes
    entries = (starts.unsqueeze(1) + chosen.unsqueeze(0))[is_there]
    kept = is_there.sum(1)
    pieces = data.index_select(0, entries.to(data.device))
    if order is None or inverse is None:
        return PackedSequence(pieces, kept[kept > 0])
    sorted_indices = places.to(order.device)
    unsorted_indices = torch.argsort(places).to(order.device)
    return PackedSequence(pieces, kept[kept > 0], sorted_indices, unsorted_indices)


# torch does not tell type checkers what a jagged tensor has more than others: hence Any.
def jagged_lengths(nested: Any) -> list[int]:
    """Return the length of every sample of a jagged nested tensor (syncs on a device)."""
    _refuse_holes(nested)
    lengths: list[int] = nested.offsets().diff().tolist()
    return lengths


def cut_jagged(nested: Any, part: slice, known: dict[int, Tensor]) -> Tensor:
    """Return some of the samples; `known` has the offsets already cut for this piece."""
    _refuse_holes(nested)
    offsets = nested.offsets()
    first, last = int(offsets[part.start]), int(offsets[part.stop])
    if id(offsets) not in known:
        known[id(offsets)] = offsets[part.start : part.stop + 1] - first
    ours = known[id(offsets)]
    return torch.nested.nested_tensor_from_jagged(nested.values()[first:last], ours)


def _refuse_holes(nested: Any) -> None:
    ragged = getattr(nested, "_ragged_idx", 1)
    if nested.lengths() is not None or ragged != 1:
        raise SplitError(
            "the batch holds a jagged nested tensor with holes, or transposed.",
            why="its samples are no stretches of its values, so it cannot be cut without a copy.",
            fix="call .contiguous() on it, and transpose inside the loss function.",
            more="split",
        )
