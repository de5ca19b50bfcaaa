"""The lines of a source as their writer laid them out: indents, comments, continuations."""

from __future__ import annotations

import io
import token
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from instep.rules.finding import Edit

if TYPE_CHECKING:
    from collections.abc import Iterable

_SILENT = {token.NL, token.COMMENT, token.INDENT, token.DEDENT, token.ENDMARKER}
# Tokens of their own from Python 3.12 on; -1 is no token.
_FSTRING_START = getattr(token, "FSTRING_START", -1)
_FSTRING_END = getattr(token, "FSTRING_END", -1)


class Spot(NamedTuple):
    """A position: lines count from 1, columns from 0 in UTF-8 bytes, as in `ast`."""

    line: int
    column: int


def span(start: Spot, end: Spot, text: str) -> Edit:
    """Return the edit that writes something else between two spots."""
    return Edit(start.line, start.column, end.line, end.column, text)


class Marks(NamedTuple):
    """What only tokens tell about lines."""

    comments: dict[int, int]
    """The column of the comment on a line."""
    continued: frozenset[int]
    """Lines that begin in the middle of a statement."""
    quoted: frozenset[int]
    """Lines that begin inside a string, whose indent is a part of the value."""


class Layout:
    r"""Lines, cut where Python cuts them, and at no other character.

    `starts` are the lines on which statements of the module begin. Between two of them tokens mean
    the same whatever stands around: only the statements that somebody asks about are cut up.

    >>> layout = Layout("if x:\n\tstep()  # now\n")
    >>> layout.indent(2), layout.comment(2), layout.is_blank(3)
    ('\t', 9, True)
    """

    def __init__(self, text: str, starts: Iterable[int] = ()) -> None:
        self.lines = text.encode("utf-8", "surrogatepass").split(b"\n")
        # A backslash joins even an empty line to the statement after it.
        joined = {at for at, line in enumerate(self.lines, start=2) if line.endswith(b"\\")}
        self._starts = sorted({1, *starts} - joined)
        self._marks: dict[int, Marks] = {}

    @property
    def end(self) -> Spot:
        """Where the text ends."""
        return Spot(len(self.lines), len(self.lines[-1]))

    def between(self, start: Spot, end: Spot) -> str:
        """Return the text of a span."""
        if start.line == end.line:
            cut = self.lines[start.line - 1][start.column : end.column]
        else:
            first = self.lines[start.line - 1][start.column :]
            last = self.lines[end.line - 1][: end.column]
            cut = b"\n".join([first, *self.lines[start.line : end.line - 1], last])
        return cut.decode("utf-8", "surrogatepass")

    def line(self, number: int) -> str:
        """Return a line without its ending; "" beyond the last."""
        if not 1 <= number <= len(self.lines):
            return ""
        return self.lines[number - 1].decode("utf-8", "surrogatepass")

    def indent(self, number: int) -> str:
        """Return what a line begins with: blanks and tabs."""
        line = self.line(number)
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def is_blank(self, number: int) -> bool:
        """Whether there is nothing on a line, or no such line."""
        return not self.line(number).strip()

    def comment(self, number: int) -> int | None:
        """Return the column at which the comment of a line starts."""
        return self.marks(number).comments.get(number)

    def is_comment(self, number: int) -> bool:
        """Whether a line holds a comment and nothing else."""
        return self.line(number).lstrip().startswith("#") and self.comment(number) is not None

    def after(self, number: int) -> Spot:
        """Return where a line may be put behind a line: `insertion` makes the text fit there."""
        return Spot(number + 1, 0) if number < len(self.lines) else self.end

    def insertion(self, spot: Spot, lines: str) -> str:
        """Return whole lines as they must be written at a spot: the last line may lack its end."""
        return f"\n{lines}" if spot == self.end and spot.column else f"{lines}\n"

    def marks(self, number: int) -> Marks:
        """Return the comments, continued lines and strings of the statement that a line belongs to,
        up to the next one; nothing where the text cannot be cut into tokens.

        Marks that are missing only make edits be refused or plainer: a fix is proved anyway.
        """
        at = bisect_right(self._starts, number)
        first = self._starts[max(at - 1, 0)]
        if first not in self._marks:
            end = self._starts[at] if at < len(self._starts) else len(self.lines) + 1
            try:
                self._marks[first] = self._cut(first, end)
            except SyntaxError:
                self._marks[first] = Marks({}, frozenset(), frozenset())
        return self._marks[first]

    def _cut(self, first: int, end: int) -> Marks:
        """Return what is between two lines; SyntaxError where it cannot be cut into tokens."""
        from tokenize import TokenError, generate_tokens  # noqa: PLC0415  # slow to load

        comments: dict[int, int] = {}
        continued: set[int] = set()
        quoted: set[int] = set()
        begun: int | None = None  # the line on which the statement began
        formats: list[int] = []
        lines = [*self.lines[first - 1 : end - 1], b""]
        text = b"\n".join(lines).decode("utf-8", "surrogatepass")
        try:
            tokens = list(generate_tokens(io.StringIO(text).readline))
        except TokenError as error:
            raise SyntaxError from error
        for each in tokens:
            line, last = each.start[0] + first - 1, each.end[0] + first - 1
            if each.type == token.COMMENT:
                before = self.line(line)[: each.start[1]]
                comments[line] = len(before.encode("utf-8", "surrogatepass"))
            elif each.type == token.NEWLINE:
                continued.update(range((begun or line) + 1, line + 1))
                begun = None
            elif each.type not in _SILENT and begun is None:
                begun = line
            if each.type == token.STRING:
                quoted.update(range(line + 1, last + 1))
            elif each.type == _FSTRING_START:
                formats.append(line)
            elif each.type == _FSTRING_END:
                quoted.update(range(formats.pop() + 1, last + 1))
        return Marks(comments, frozenset(continued), frozenset(quoted))
