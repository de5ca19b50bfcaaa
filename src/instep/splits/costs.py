"""Pieces of about equal cost: what each sample costs, and where to cut.

Where to cut is decided in plain numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from instep.errors import SplitError
from instep.splits import tree
from instep.splits.cut import lengths_of
from instep.splits.listed import is_listed

IGNORED = -100
"""The label that losses of torch ignore unless told otherwise."""

Cost = Callable[[Any], Iterable[float] | Tensor]


def cut_by_cost(costs: Sequence[float], budget: float) -> tuple[slice, ...]:
    """Cut samples, in their order, into the fewest pieces that cost no more than the budget.

    Among the ways to do that, the one whose dearest piece is cheapest; a sample over the budget is
    alone in its piece.

    >>> cut_by_cost([4, 1, 1, 1, 1], 6)
    (slice(0, 1, None), slice(1, 5, None))
    >>> cut_by_cost([2, 9, 2, 2], 6)
    (slice(0, 1, None), slice(1, 2, None), slice(2, 4, None))
    """
    pieces: list[slice] = []
    start = 0
    for index, cost in enumerate([*costs, math.inf]):
        if cost > budget:
            pieces += [
                slice(start + a, start + b) for a, b in _balanced(costs[start:index], budget)
            ]
            if index < len(costs):
                pieces.append(slice(index, index + 1))
            start = index + 1
    return tuple(pieces)


def _balanced(costs: Sequence[float], budget: float) -> list[tuple[int, int]]:
    """Cut a run of samples that all fit, as above."""
    if not costs:
        return []
    best = _greedy(costs, budget)
    few = len(best)
    high = _dearest(costs, best)
    low = max(*costs, math.fsum(costs) / few) if len(costs) > 1 else high
    # Halving comes close; the steps after it are exact, because each goes below a cost that occurs.
    for _ in range(40):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        found = _greedy(costs, middle)
        if len(found) > few:
            low = middle
        else:
            best, high = found, _dearest(costs, found)
    while True:
        found = _greedy(costs, math.nextafter(high, -math.inf))
        if len(found) > few or _dearest(costs, found) >= high:
            return best
        best, high = found, _dearest(costs, found)


def _greedy(costs: Sequence[float], limit: float) -> list[tuple[int, int]]:
    """Fill piece after piece: no way to cut below the limit has fewer of them."""
    pieces, start, held = [], 0, 0.0
    for index, cost in enumerate(costs):
        if index > start and held + cost > limit:
            pieces.append((start, index))
            start, held = index, 0.0
        held += cost
    pieces.append((start, len(costs)))
    return pieces


def _dearest(costs: Sequence[float], pieces: Iterable[tuple[int, int]]) -> float:
    # Added in the same order as above: another one may round differently.
    return max(sum(costs[a:b], 0.0) for a, b in pieces)


def costs_of(batch: Any, samples: int, dim: int | None, cost: Cost | None) -> list[float]:
    """Return what each sample costs: by the user's function, or its real tokens.

    Reads masks and labels from their device.
    """
    if cost is not None:
        given = cost(batch)
        found = given.tolist() if isinstance(given, Tensor) else [float(c) for c in given]
    elif is_listed(batch, dim) or dim is None:
        found = [cost for sample in batch for cost in _tokens(tree.rebuild(sample, _alone), 1, 0)]
    else:
        found = _tokens(batch, samples, dim)
    if len(found) != samples or not all(c >= 0 and math.isfinite(c) for c in found):
        raise SplitError(
            f"cost= gave {len(found)} costs for {samples} samples."
            if len(found) != samples
            else "cost= gave a cost that is negative, inf or NaN.",
            why="there is one cost per sample, and pieces are cut where their sum is full.",
            fix="return a tensor or a list with one number, 0 or more, for each sample.",
            more="split",
        )
    return found


def _alone(value: Any) -> Any:
    """Return a tensor of one sample as that of a batch of one."""
    return value[None] if isinstance(value, Tensor) and value.dim() else value


def _tokens(batch: Any, samples: int, dim: int) -> list[float]:
    named = list(tree.leaves(batch))
    for _, leaf in named:
        lengths = lengths_of(leaf)
        if lengths is not None:
            return [float(length) for length in lengths]
    dense = [(name, t) for name, t in named if isinstance(t, Tensor) and t.dim() > max(dim, 1)]
    kept = _mask(dense, samples, dim)
    if kept is None:
        first = next((t for _, t in named if isinstance(t, Tensor) and t.dim()), None)
        if first is None:
            raise SplitError(
                "nothing tells how many tokens a sample has.",
                why="it has no tensor of one dimension or more.",
                fix="pass cost=, a function of the batch that returns one number per sample.",
                more="split",
            )
        return [first.numel() / samples if samples else 0.0] * samples
    return [float(c) for c in _per_sample(kept, samples, dim)]


def _mask(dense: Iterable[tuple[str, Tensor]], samples: int, dim: int) -> Tensor | None:
    """Return what says which entries are real: a mask by its name or type, or ignored labels."""
    held = [(name, t) for name, t in dense if t.shape[dim] == samples]
    for name, tensor in held:
        if name == "attention_mask":
            return tensor != 0
    for name, tensor in held:
        if tensor.dtype is torch.bool:
            # torch's own key_padding_mask is true where there is nothing.
            return ~tensor if "padding" in name else tensor
    for _, tensor in held:
        if tensor.dtype is torch.int64:
            real = tensor != IGNORED
            if not bool(real.all()):
                return real
    return None


def _per_sample(kept: Tensor, samples: int, dim: int) -> list[int]:
    counts: list[int] = kept.movedim(dim, 0).reshape(samples, -1).sum(1).tolist()
    return counts


def evenly(samples: int, size: int) -> tuple[slice, ...]:
    """Cut into pieces of `size` samples; the last one may be smaller."""
    bounds = [*range(0, samples, size), samples]
    return tuple(slice(a, b) for a, b in itertools.pairwise(bounds))
