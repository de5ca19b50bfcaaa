"""The user's lines, as a running program knows them."""

from __future__ import annotations

import ast
import linecache
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from instep.rules.finding import Related
from instep.rules.silencing import Comments, ends_of_statements, hits, read_comments

if TYPE_CHECKING:
    from instep.rules.finding import Finding
    from instep.trace import Place


_Read = tuple[Comments, dict[int, tuple[int, int]]]
"""The comments of a file, and where its statements begin and end."""


class Quoting:
    """Reads the user's files, each once, and shortens the paths of those in one folder.

    What has no file, such as a cell of a notebook, is read where Python's tracebacks read it.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or os.getcwd()  # noqa: PTH109  # a text, as code objects have it
        self._lines: dict[str, list[str]] = {}
        self._comments: dict[str, _Read] = {}

    def __call__(self, path: str, cell: int | None = None) -> list[str] | None:
        """Return the lines of a file without their ends; None if they are not to be had."""
        del cell
        if path not in self._lines:
            linecache.checkcache(path)  # a notebook, or a long day, may have changed it
            known = linecache.getlines(path)
            if not known and not path.startswith("<"):
                known = linecache.getlines(str(Path(self.folder, path)))
            self._lines[path] = [line.rstrip("\r\n") for line in known]
        return self._lines[path] or None

    def shown(self, finding: Finding) -> Finding:
        """Return a finding with the paths that its reader would type."""
        related = tuple(Related(self.near(each.place), each.label) for each in finding.related)
        return replace(finding, place=self.near(finding.place), related=related)

    def is_silenced(self, finding: Finding) -> bool:
        """Say whether a comment at the user's line asks not to hear of a finding.

        It counts on the line of the finding, and on the first and the last line of its statement.
        """
        path, line = finding.place.path, finding.place.line
        known = self._comments.get(path)
        if known is None:
            known = self._comments[path] = self._read(path)
        comments, ends = known
        return comments.skips_file or bool(hits(comments, finding, {line, *ends.get(line, ())}))

    def _read(self, path: str) -> _Read:
        text = "\n".join(self(path) or ())
        comments = read_comments(text)
        ends: dict[int, tuple[int, int]] = {}
        if comments.suppressions:
            try:
                ends = ends_of_statements(ast.parse(text))
            except (SyntaxError, ValueError, RecursionError):
                ends = {}  # a cell with a magic: its comments count on their own lines
        return comments, ends

    def near(self, place: Place) -> Place:
        """Return a place with the path that its reader would type."""
        folder = os.path.join(self.folder, "")  # noqa: PTH118  # with the separator at its end
        return replace(place, path=place.path.removeprefix(folder))
