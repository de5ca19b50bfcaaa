"""A source line as it looks in a terminal: which column each of its characters starts in."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from unicodedata import combining, east_asian_width

from instep.reports.escape import is_unsafe, spelled
from instep.trace.plain import dataclass

_TAB = 4
_ELLIPSIS = "..."  # in ASCII: not every terminal has the single character
_NARROWEST = 40


def width_of(character: str) -> int:
    """Return how many columns a printable character takes.

    >>> [width_of(character) for character in ("a", "損", "\N{COMBINING ACUTE ACCENT}")]
    [1, 2, 0]
    """
    if character < "\u0300":
        return 1
    if combining(character) or "\ufe00" <= character <= "\ufe0f":
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


@dataclass(frozen=True, slots=True)
class Shown:
    """A line, or the part of a long one that is shown."""

    text: str
    first: int
    """Index of the first character that is shown."""
    starts: tuple[int, ...]
    """Display column of each shown character, and of the end."""

    def column(self, index: int) -> int:
        """Return the display column of a character; one that is not shown is at the edge."""
        return self.starts[min(max(index - self.first, 0), len(self.starts) - 1)]


def show(line: str, *, focus: int, width: int) -> Shown:
    r"""Lay out a line in so many columns; if it has more, the part around `focus` is kept.

    >>> show("\tx = '\x1b'", focus=0, width=80).text
    "    x = '\\x1b'"
    """
    width = max(width, _NARROWEST)
    focus = min(max(focus, 0), len(line))
    # No more than can be shown is looked at, so that a line of megabytes costs nothing.
    low, high = max(focus - width, 0), focus + width
    pieces = _pieces(line[low:high])
    starts = [0, *accumulate(width for _, width in pieces)]
    if low == 0 and high >= len(line) and starts[-1] <= width:
        return Shown("".join(text for text, _ in pieces), 0, tuple(starts))
    room = width - 2 * len(_ELLIPSIS)
    at = starts[focus - low]
    # From the left edge if that keeps the focus well in view, else with a third before it.
    first = bisect_left(starts, at - room // 3) if low or at > room * 2 // 3 else 0
    last = bisect_right(starts, starts[first] + room) - 1
    head = _ELLIPSIS if low + first else ""
    tail = _ELLIPSIS if low + last < len(line) else ""
    shift = len(head) - starts[first]
    return Shown(
        head + "".join(text for text, _ in pieces[first:last]) + tail,
        low + first,
        tuple(start + shift for start in starts[first : last + 1]),
    )


def _pieces(text: str) -> list[tuple[str, int]]:
    """Return what is printed for each character, and how many columns it takes."""
    pieces: list[tuple[str, int]] = []
    column = 0
    for character in text:
        if character == "\t":
            piece = " " * (_TAB - column % _TAB)
        else:
            piece = spelled(character) if is_unsafe(character) else character
        taken = width_of(piece) if len(piece) == 1 else len(piece)
        pieces.append((piece, taken))
        column += taken
    return pieces
