"""The lines that reports quote and baselines remember."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from instep.check.decoding import Decoded, decode
from instep.check.lines import plain
from instep.check.problems import Diagnostic
from instep.check.sources import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from instep.trace import Place


class Quotes:
    """Reads the files that findings are in, each once; what cannot be read has no lines."""

    def __init__(self, contents: Mapping[str, bytes] | None = None) -> None:
        self._contents = dict(contents or {})
        """What is no file, or not yet: standard input, and fixes that are only shown."""
        self._files: dict[str, dict[int | None, list[str]]] = {}

    def __call__(self, path: str, cell: int | None) -> list[str] | None:
        """Return the lines of a file, or of a notebook's cell."""
        if path not in self._files:
            self._files[path] = self._read(path)
        return self._files[path].get(cell)

    def line(self, place: Place) -> str:
        """Return the line that a place is on; "" if it is not to be had."""
        lines = self(place.path, place.cell) or []
        return lines[place.line - 1] if 1 <= place.line <= len(lines) else ""

    def _read(self, path: str) -> dict[int | None, list[str]]:
        try:
            data = self._contents[path] if path in self._contents else Path(path).read_bytes()
        except (OSError, ValueError):
            return {}
        if kind_of(path) == "notebook":
            return _cells(data, path)
        decoded = decode(data)
        whole = decoded.whole if isinstance(decoded, Decoded) else data.decode("utf-8", "replace")
        return {None: plain(whole.removeprefix("\ufeff")).split("\n")}


def _cells(data: bytes, path: str) -> dict[int | None, list[str]]:
    from instep.check.notebooks import NotebookOrigin, notebook_units  # noqa: PLC0415  # rare

    units = notebook_units(data.decode("utf-8", "replace"), path)
    if isinstance(units, Diagnostic) or not units:
        return {}
    origin = units[0].origin
    if not isinstance(origin, NotebookOrigin):
        return {}
    return {at: cell.source.split("\n") for at, cell in enumerate(origin.cells, start=1)}
