"""The Python blocks of Markdown and other text files, each a unit of its own.

Tutorials are where wrong loops are copied from. Most of their blocks are fragments, and some are
no Python at all: what does not parse is passed over without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.fences import Block, blocks
from instep.check.lines import Line, cut, realign, usual_ending
from instep.check.magics import neutralise, revive
from instep.check.units import Locator, Splice, Spot, Unit, build, line_at
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from instep.check.units import Wanted
    from instep.trace import Place

_MARKS = ("```", "~~~", "code")


@dataclass(frozen=True)
class BlockOrigin:
    """A text file and one block in it."""

    whole: str
    lines: tuple[Line, ...]
    block: Block

    @property
    def code(self) -> list[str]:
        """The lines of the block, without what stands before the code."""
        own = self.lines[self.block.first : self.block.last]
        return [
            line.text[len(prefix) :] for line, prefix in zip(own, self.block.prefixes, strict=True)
        ]

    def splices(self, new_text: str) -> list[Splice]:
        """Replace the lines of the block; those that are kept stay as they are written."""
        own = self.lines[self.block.first : self.block.last]
        usual = usual_ending(list(self.lines))
        new = revive(new_text.removesuffix("\n")).split("\n")
        written = []
        for text, at in zip(new, realign(self.code, new), strict=True):
            if at is None:
                full = self.block.prefix + text
                written.append((full if text else full.rstrip()) + usual)
            else:
                written.append(own[at].text + (own[at].ending or usual))
        if not own[-1].ending:  # the file ends inside the block
            written[-1] = written[-1].rstrip("\r\n")
        start, end = own[0].start, own[-1].start + len(own[-1].text) + len(own[-1].ending)
        return [Splice(start, end, "".join(written))]

    def line(self, place: Place) -> str:
        """Return the line of the file that a place is on, indent and all."""
        return line_at([line.text for line in self.lines], place.line)


def markdown_units(whole: str, path: str, wanted: Wanted | None = None) -> list[Unit]:
    r"""Return a unit for every block that parses as Python.

    >>> [unit] = markdown_units("Train:\n\n- like this:\n\n  ```python\n  loss = 1\n", "a.md")
    >>> unit.text
    'loss = 1\n'
    >>> print(unit.locator.place(1, 0))
    a.md:6:3
    """
    if not any(mark in whole for mark in _MARKS) or (wanted is not None and not wanted(whole)):
        return []
    lines = cut(whole)
    if not lines[-1].text:
        lines.pop()  # what follows the last line end is no line of a block
    frozen = tuple(lines)
    units = []
    for block in blocks(lines):
        origin = BlockOrigin(whole, frozen, block)
        text = neutralise("\n".join(origin.code)) + "\n"
        if wanted is not None and not wanted(text):
            continue
        spots = tuple(
            Spot(block.first + at + 1, shift=len(prefix.encode("utf-8", "replace")))
            for at, prefix in enumerate(block.prefixes)
        )
        built = build(text, "markdown", Locator(path, spots), origin)
        if isinstance(built, Unit):
            units.append(built)
    return units
