"""What every split comes down to: pieces of a batch, and how what is made of them fits together."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from instep.errors import SplitError


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece: what the loss function is given, and what a bare mean of it is a mean of."""

    value: Any
    items: int | None
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while the user's function runs on this piece."""
    likeness: Hashable | None = ()
    """What `around` does: pieces of one shape and likeness run alike. None: like no other."""
    refused: SplitError | None = None
    """Why samples could not be counted, where a bare mean needs them."""


class Plan(Protocol):
    """A batch, cut. Pieces are made one at a time, so that only one of them is in memory."""

    def __len__(self) -> int:
        """Return how many pieces there are."""

    def __iter__(self) -> Iterator[Piece]:
        """Yield the pieces in order."""

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Put together what was computed from all pieces, as if from the whole."""

    def part(self, whole: Tensor, index: int) -> Tensor:
        """Return what piece `index` contributed to something joined: the inverse of `join`."""

    def try_on(self, function: Callable[[Any], Any]) -> None:
        """Raise if a piece, as a function uses it, is no part of the whole. Changes nothing."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Pieces along the samples: a list of slices of the dimension that they are along."""

    slices: tuple[slice, ...]
    cut: Callable[[slice], Any]
    dim: int = 0

    def __len__(self) -> int:
        return len(self.slices)

    def try_on(self, function: Callable[[Any], Any]) -> None:
        """Find nothing: samples are parts of a batch whatever is done with them."""

    def __iter__(self) -> Iterator[Piece]:
        for part in self.slices:
            yield Piece(self.cut(part), part.stop - part.start)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Concatenate along the samples."""
        return torch.cat(list(parts), self.dim if parts[0].dim() > 1 else 0)

    def part(self, whole: Tensor, index: int) -> Tensor:
        """Return the rows of piece `index`."""
        before = (slice(None),) * (self.dim if whole.dim() > 1 else 0)
        return whole[(*before, self.slices[index])]


@dataclass(frozen=True, slots=True)
class Uncut:
    """The batch as its only piece."""

    batch: Any
    items: int | None
    refused: SplitError | None = None

    def __len__(self) -> int:
        return 1

    def try_on(self, function: Callable[[Any], Any]) -> None:
        """Find nothing: the whole is the whole."""

    def __iter__(self) -> Iterator[Piece]:
        yield Piece(self.batch, self.items, refused=self.refused)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the only part."""
        (part,) = parts
        return part

    def part(self, whole: Tensor, index: int) -> Tensor:  # noqa: ARG002 -- there is only one
        """Return everything."""
        return whole
