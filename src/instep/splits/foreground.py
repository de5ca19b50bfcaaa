"""Maps that say where patches should lie: read once, block by block, and then only where drawn.

Of every block only a number is kept: its labelled pixels of each class, or the sum of its weights.
A block is drawn by its number, read again, and a pixel is drawn in it. That is the same as drawing
a pixel of the whole map, which need never be in memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from instep.errors import SplitError
from instep.splits.places import Ballot, blocks
from instep.splits.reading import window

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from fractions import Fraction
    from random import Random

    from torch import Tensor

    from instep.splits.tiles import Slices

    Pixel = tuple[int, tuple[int, ...]]  # a source, and a pixel of its image

Group = int | None
"""A source, or None for all of them."""


@dataclass(frozen=True, slots=True)
class Map:
    """What is said of an image's pixels, and its own pixels per pixel of the image."""

    array: Any
    ratios: tuple[Fraction, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Pixels along each axis; there must be no channels."""
        shape = tuple(self.array.shape)
        ahead = len(shape) - len(self.ratios)
        if any(n != 1 for n in shape[:ahead]):
            raise SplitError(
                f"a map of labels or weights has the shape {shape}.",
                why="it says one thing of each pixel, so it has no channels.",
                fix="keep one channel: a map of class numbers, or of weights.",
                more="patches",
            )
        return shape[ahead:]

    def read(self, block: Slices) -> Tensor:
        """Read a block."""
        read = window(self.array, block)
        return read.reshape(read.shape[read.dim() - len(block) :])

    def in_image(self, number: int, block: Slices) -> tuple[int, ...]:
        """Return where in the image a pixel of a block lies, by its number in the block."""
        places = []
        for part, ratio in zip(reversed(block), reversed(self.ratios), strict=True):
            number, at = divmod(number, part.stop - part.start)
            places.append(int((at + part.start) / ratio))
        return tuple(reversed(places))


class Drawer:
    """Blocks of maps, drawn by what they hold of a kind: a class, any class, or weight."""

    def __init__(self, maps: Sequence[Map]) -> None:
        self._maps = maps
        self._entries: dict[Hashable, list[tuple[int, Slices, float]]] = {}
        self._ballots: dict[Hashable, Ballot] = {}

    def _note(self, kind: Hashable, source: int, block: Slices, weight: float) -> None:
        for group in (source, None):
            self._entries.setdefault((group, kind), []).append((source, block, weight))

    def _close(self) -> None:
        for key, entries in self._entries.items():
            self._ballots[key] = Ballot.of([weight for _, _, weight in entries])

    def holds(self, group: Group, kind: Hashable) -> bool:
        """Whether there is anything of a kind to draw in a source, or in any."""
        return (group, kind) in self._ballots and self._ballots[group, kind].total > 0

    def _block(self, random: Random, group: Group, kind: Hashable) -> tuple[int, Slices, Tensor]:
        entry, _ = self._ballots[group, kind].draw(random)
        source, block, _ = self._entries[group, kind][entry]
        return source, block, self._maps[source].read(block)

    def _blocks(self) -> Iterator[tuple[int, Slices, Tensor]]:
        for source, found in enumerate(self._maps):
            for block in blocks(found.sizes):
                yield source, block, found.read(block)


class Foreground(Drawer):
    """Labelled pixels."""

    def __init__(self, maps: Sequence[Map], background: Sequence[int], *, balanced: bool) -> None:
        super().__init__(maps)
        self._background = background
        self._balanced = balanced
        self._classes: dict[Group, Counter[int]] = {}
        for source, block, read in self._blocks():
            values, counts = read.long().unique(return_counts=True)
            held = dict(zip(values.tolist(), counts.tolist(), strict=True))
            held = {value: n for value, n in held.items() if value not in background}
            for group in (source, None):
                self._classes.setdefault(group, Counter()).update(held)
            for value, count in held.items() if balanced else ():
                self._note(value, source, block, count)
            if held and not balanced:
                self._note("any", source, block, sum(held.values()))
        self._close()
        if not self.has(None):
            raise SplitError(
                "no pixel of any source is labelled.",
                why=f"labels other than {tuple(background)} are foreground, and there are none.",
                fix="name the labels with label=, say which are background=, or leave foreground "
                "out.",
                more="patches",
            )

    def has(self, group: Group) -> bool:
        """Whether a source, or any, has a labelled pixel."""
        return bool(self._classes.get(group))

    def draw(self, random: Random, group: Group) -> Pixel:
        """Draw a labelled pixel; each class as often as the others, if that was asked for."""
        kind: int | str = "any"
        if self._balanced:
            kind = random.choice(sorted(self._classes[group]))
        source, block, read = self._block(random, group, kind)
        flat = read.long().flatten()
        if isinstance(kind, int):
            wanted = flat.eq(kind)
        else:
            wanted = torch.ones_like(flat, dtype=torch.bool)
            for value in self._background:
                wanted &= flat.ne(value)
        found = wanted.nonzero()
        if not len(found):
            raise SplitError(
                f"the labels of source {source} have changed.",
                why="where they are was read when the patches were set up.",
                fix="make a new RandomPatches after changing labels.",
                more="patches",
            )
        number = int(found[random.randrange(len(found))])
        return source, self._maps[source].in_image(number, block)


class WeightMap(Drawer):
    """Pixels by their weights."""

    def __init__(self, maps: Sequence[Map]) -> None:
        super().__init__(maps)
        for source, block, read in self._blocks():
            weights = read.double()
            if not bool((weights.isfinite() & (weights >= 0)).all()):
                raise SplitError(
                    f"the weights of source {source} are not all numbers from 0 on.",
                    why="a pixel is drawn in proportion to its weight.",
                    fix="set negative weights and NaN to 0.",
                    more="patches",
                )
            self._note("weight", source, block, float(weights.sum()))
        self._close()
        if not self.has(None):
            raise SplitError(
                "every weight of every source is zero.",
                why="a pixel is drawn in proportion to its weight.",
                fix="give some pixels a weight.",
                more="patches",
            )

    def has(self, group: Group) -> bool:
        """Whether a source, or any, has a weight over zero."""
        return self.holds(group, "weight")

    def draw(self, random: Random, group: Group) -> Pixel:
        """Draw a pixel."""
        source, block, read = self._block(random, group, "weight")
        ends = read.double().flatten().cumsum(0)
        number = random.random() * float(ends[-1])
        # Rounding must not draw what has no weight.
        last = int(torch.searchsorted(ends, float(ends[-1])))
        entry = min(int(torch.searchsorted(ends, number, right=True)), last)
        return source, self._maps[source].in_image(entry, block)
