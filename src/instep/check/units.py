"""A unit: Python text to be judged, and its way back to the file that it came from."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from instep.check.lines import plain, restore
from instep.check.parsing import Fault, parse
from instep.check.problems import Diagnostic, diagnose
from instep.trace import Place
from instep.trace.plain import dataclass, field

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Sequence
    from typing import Protocol

    Wanted = Callable[[str], bool]

UnitKind = Literal["python", "notebook", "markdown", "stdin"]


class Spot(NamedTuple):
    """Where a line of a unit's text stands in the user's file."""

    line: int
    shift: int = 0
    """Bytes that the user's line has before the text begins."""
    cell: int | None = None


@dataclass(frozen=True)
class Locator:
    """Maps positions of a unit's text to places in the user's file.

    >>> Locator("notes.md", (Spot(12, shift=4), Spot(13, shift=4))).place(2, 0)
    Place(path='notes.md', line=13, column=4, ...)
    """

    path: str
    spots: tuple[Spot, ...] = field(default=(), repr=False)
    """One per line of the text; none at all if the text is the file."""

    def place(
        self,
        line: int,
        column: int | None = None,
        end_line: int | None = None,
        end_column: int | None = None,
        *,
        function: str | None = None,
        snippet: str | None = None,
    ) -> Place:
        """Return the place of a position or span; lines from 1, columns in bytes, as in `ast`."""
        start = self._spot(line)
        end = None if end_line is None else self._spot(end_line)
        if end is not None and end.cell != start.cell:
            end = None
        return Place(
            self.path,
            start.line,
            column=None if column is None else column + start.shift,
            end_line=None if end is None else end.line,
            end_column=None if end is None or end_column is None else end_column + end.shift,
            function=function,
            snippet=snippet,
            cell=start.cell,
        )

    def text_line(self, place: Place) -> int | None:
        """Return the line of the text that a place of the user's file is on, if there is one."""
        if not self.spots:
            return place.line
        return self._back.get((place.cell, place.line))

    def _spot(self, line: int) -> Spot:
        if not self.spots:
            return Spot(line)
        return self.spots[min(max(line, 1), len(self.spots)) - 1]

    @cached_property
    def _back(self) -> dict[tuple[int | None, int], int]:
        # Later lines win: the mark before a cell shares its spot with the first line after it.
        return {(spot.cell, spot.line): at for at, spot in enumerate(self.spots, start=1)}


class Splice(NamedTuple):
    """Characters of the whole file, and what takes their place."""

    start: int
    end: int
    text: str


if TYPE_CHECKING:  # slow to define, and nobody asks for it at run time

    class Origin(Protocol):
        """The file behind a unit, and how edited text goes back into it."""

        @property
        def whole(self) -> str:
            """The file's text as it is, byte-order mark and line endings included."""

        def splices(self, new_text: str) -> list[Splice]:
            """Return what must change in `whole` so that the unit reads `new_text`."""

        def line(self, place: Place) -> str:
            """Return the line of the user's file that a place is on."""


@dataclass(frozen=True)
class PlainOrigin:
    """A file that is Python from beginning to end."""

    whole: str

    def splices(self, new_text: str) -> list[Splice]:
        """Replace everything after the byte-order mark."""
        mark = "\ufeff" if self.whole.startswith("\ufeff") else ""
        start = len(mark)
        return [Splice(start, len(self.whole), restore(self.whole[start:], new_text))]

    def line(self, place: Place) -> str:
        """Return the line a place is on."""
        return line_at(self._lines, place.line)

    @cached_property
    def _lines(self) -> list[str]:
        return plain(self.whole.removeprefix("\ufeff")).split("\n")


@dataclass(frozen=True)
class Unit:
    """Python text to judge: a file, a notebook's cells, or one block of a Markdown file."""

    path: str
    """As shown to the user."""
    text: str = field(repr=False)
    kind: UnitKind
    locator: Locator
    tree: ast.Module = field(repr=False, compare=False)
    """`text`, parsed."""
    origin: Origin = field(repr=False, compare=False)
    encoding: str = "utf-8"
    left_out: tuple[Diagnostic, ...] = field(default=(), repr=False, compare=False)
    """Cells about training that do not parse, and are hidden in `text`."""

    def write_back(self, new_text: str) -> str:
        """Return the whole file with this unit's text replaced, and nothing else changed."""
        return merge_back([(self, new_text)])

    def to_bytes(self, whole: str) -> bytes:
        """Encode the whole file as it was encoded; UnicodeEncodeError if it cannot hold it."""
        return whole.encode(self.encoding)

    def source_line(self, place: Place) -> str:
        """Return the line of the user's file that a place is on, without its ending."""
        return self.origin.line(place)


def merge_back(changes: Sequence[tuple[Unit, str]]) -> str:
    """Return the whole file with the texts of several of its units replaced."""
    whole = changes[0][0].origin.whole
    splices = [splice for unit, text in changes for splice in unit.origin.splices(text)]
    for splice in sorted(splices, reverse=True):
        whole = whole[: splice.start] + splice.text + whole[splice.end :]
    return whole


def line_at(lines: Sequence[str], line: int) -> str:
    """Return a line counted from 1; "" if there is none."""
    return lines[line - 1] if 1 <= line <= len(lines) else ""


def build(
    text: str, kind: UnitKind, locator: Locator, origin: Origin, encoding: str = "utf-8"
) -> Unit | Diagnostic:
    """Parse a text and make the unit of it, or say why it is none."""
    tree = parse(text)
    if isinstance(tree, Fault):
        return fault_at(tree, locator)
    return Unit(locator.path, text, kind, locator, tree, origin, encoding)


def fault_at(fault: Fault, locator: Locator) -> Diagnostic:
    """Turn a fault of a text into the diagnostic of the user's file."""
    return diagnose(fault.kind, locator.place(fault.line, fault.column), fault.what)
