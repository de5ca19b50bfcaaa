"""`Micro`: a batch cut along its samples, whatever structure its tensors come in."""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.errors import SplitError
from instep.splits.plan import Rows
from instep.splits.tree import rebuild, tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn


@dataclass(frozen=True, slots=True)
class Micro:
    """Cut a batch into micro-batches of `size` samples; the last one may be smaller.

    Tensors are cut along their first dimension, inside tuples, lists, dicts and dataclasses too.
    Lists without tensors are cut if they have one entry per sample; everything else goes to each
    piece.

    >>> import torch
    >>> [piece["x"].shape[0] for piece in Micro(2).pieces({"x": torch.ones(5, 3), "name": "train"})]
    [2, 2, 1]
    """

    size: int

    def __post_init__(self) -> None:
        if (whole_number(self.size) or 0) < 1:
            raise SplitError(
                f"split is {self.size!r}.",
                why="it is how many samples each piece has.",
                fix="pass split=32, for example.",
                more="split",
            )

    def plan(self, batch: Any, models: Sequence[nn.Module] = ()) -> Rows:  # noqa: ARG002
        """Decide where to cut; an empty batch has no pieces."""
        samples = self.samples(batch)
        if samples is None:
            raise SplitError(
                "the batch has no tensor to cut.",
                why=f"it is a {type(batch).__name__} without tensors of one dimension or more.",
                fix="put the samples into tensors, along their first dimension.",
                more="split",
            )
        size = operator.index(self.size)
        bounds = [*range(0, samples, size), samples]
        slices = tuple(slice(a, b) for a, b in itertools.pairwise(bounds))
        return Rows(slices, lambda part: _cut(batch, part, samples))

    def pieces(self, batch: Any) -> Iterator[Any]:
        """Yield the pieces in order."""
        return (piece.value for piece in self.plan(batch))

    @staticmethod
    def samples(batch: Any) -> int | None:
        """Return how many samples a batch has; None if it holds no tensor that could tell."""
        found = [tensor for tensor in tensors(batch) if tensor.dim()]
        for tensor in found:
            if tensor.layout != torch.strided:
                raise SplitError(
                    f"the batch holds a tensor of layout {tensor.layout}.",
                    why="only dense tensors have samples along a first dimension to cut.",
                    fix="cut the batch yourself, and run the pieces in a window by hand.",
                    more="split",
                )
        lengths = {len(tensor) for tensor in found}
        if len(lengths) > 1:
            raise SplitError(
                f"the tensors of the batch have {sorted(lengths)} samples.",
                why="they are cut together along their first dimension, so it must be the same.",
                fix="put the samples first in every tensor, or return (loss, items) and pass no "
                "split.",
                more="split",
            )
        return lengths.pop() if lengths else None


def whole_number(value: Any) -> int | None:
    """Return a whole number of whatever integer type as an int, and None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _cut(batch: Any, part: slice, samples: int) -> Any:
    def change(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value[part] if value.dim() else value
        if (isinstance(value, list) or type(value) is tuple) and len(value) == samples:
            return value[part]
        return value

    return rebuild(batch, change)
