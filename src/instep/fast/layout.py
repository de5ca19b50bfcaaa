"""Where each parameter lies in a flat buffer: whole numbers only, no tensors."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 1024
"""Elements that one program of a kernel handles; each block belongs to one parameter."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Parameters one after the other, each beginning at a block of its own.

    >>> layout = Layout.of([5000, 10])
    >>> layout.offsets, layout.length, layout.owners
    ((0, 5120), 6144, (0, 0, 0, 0, 0, 1))
    """

    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    length: int

    @classmethod
    def of(cls, sizes: Sequence[int]) -> Layout:
        """Lay out parameters of these numbers of elements."""
        padded = [-(-size // BLOCK) * BLOCK for size in sizes]
        ends = list(itertools.accumulate(padded))
        starts = [end - length for end, length in zip(ends, padded, strict=True)]
        return cls(tuple(sizes), tuple(starts), ends[-1] if ends else 0)

    @property
    def owners(self) -> tuple[int, ...]:
        """The parameter that each block belongs to."""
        return tuple(
            index for index, size in enumerate(self.sizes) for _ in range(-(-size // BLOCK))
        )
