"""Jupyter notebooks: the code cells as one Python text, and edits back into their JSON.

Only the `source` of a cell that changed is written again, in the layout it had; the rest of the
file is not touched, so that a fix is a small diff. A cell that does not parse is left out, as
Jupyter runs the others all the same.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from instep.check import json_spans
from instep.check.lines import plain, restore
from instep.check.magics import hide_all, neutralise, revive
from instep.check.parsing import Fault, parse
from instep.check.problems import Diagnostic, diagnose
from instep.check.units import Locator, Splice, Spot, Unit, build, fault_at, line_at
from instep.check.words import wanted as is_about_training
from instep.trace import Place
from instep.trace.plain import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from instep.check.json_spans import Span
    from instep.check.units import Wanted

_BOUNDARY = "#\x1f\x1f cell "
# IPython takes the indentation of a cell's first line from all of its lines. Here it stays, so that
# no column moves, below a line that asks for it.
_INDENTED = "if 1:  "
_SPLIT = re.compile(rf"^(?:{_INDENTED})?{_BOUNDARY}(\d+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """A code cell: its source with plain newlines, and where the JSON has it."""

    source: str
    span: Span

    @property
    def written(self) -> str:
        """The source as the notebook has it."""
        value = self.span.value
        return value if isinstance(value, str) else "".join(value)


@dataclass(frozen=True)
class NotebookOrigin:
    """The JSON of a notebook and the code cells in it."""

    whole: str
    cells: tuple[Cell, ...]

    def splices(self, new_text: str) -> list[Splice]:
        """Write again the source of each cell that reads differently."""
        parts = _SPLIT.split(new_text)
        if parts[1::2] != [str(at + 1) for at in range(len(self.cells))] or parts[0]:
            msg = "an edit reached from one notebook cell into another"
            raise ValueError(msg)
        changed = []
        for cell, part in zip(self.cells, parts[2::2], strict=True):
            source = revive(part.removesuffix("\n"))
            if source != cell.source:
                written = self._render(cell, restore(cell.written, source))
                changed.append(Splice(cell.span.start, cell.span.end, written))
        return changed

    def line(self, place: Place) -> str:
        """Return the line of the cell that a place is on, magics and all."""
        if place.cell is None or not 1 <= place.cell <= len(self.cells):
            return ""
        return line_at(self.cells[place.cell - 1].source.split("\n"), place.line)

    def _render(self, cell: Cell, source: str) -> str:
        if isinstance(cell.span.value, str):
            return self._dump(source)
        items, layout = json_spans.items(self.whole, cell.span)
        raw = dict(items)
        pieces = [raw.get(line) or self._dump(line) for line in _pieces(source)]
        if not pieces:
            return "[]"
        layout = layout or self._layout
        return f"[{layout.opening}{layout.between.join(pieces)}{layout.closing}]"

    def _dump(self, value: str) -> str:
        return json.dumps(value, ensure_ascii=self._escapes)

    @cached_property
    def _escapes(self) -> bool:
        r"""Whether the file writes é as \u00e9; Jupyter itself does not."""
        return self.whole.isascii() and "\\u" in self.whole

    @cached_property
    def _layout(self) -> json_spans.Layout:
        """How other cells are laid out, for one that was empty."""
        for cell in self.cells:
            layout = json_spans.items(self.whole, cell.span)[1]
            if layout is not None:
                return layout
        return json_spans.Layout("", ", ", "")


def notebook_units(whole: str, path: str, wanted: Wanted | None = None) -> list[Unit] | Diagnostic:
    """Return the one unit of a notebook; none if it has no Python in it."""
    if wanted is not None and not wanted(whole):
        return []
    try:
        notebook = json_spans.read(whole)
        found = _code_cells(notebook)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        line = whole.count("\n", 0, error.pos) + 1 if isinstance(error, json.JSONDecodeError) else 1
        return diagnose("bad-notebook", Place(path, line), f"it cannot be read ({error}).")
    cells = tuple(found)
    numbered = tuple(enumerate(cells, start=1))
    text, spots = _join(numbered)
    if not cells or (wanted is not None and not wanted(text)):
        return []
    origin = NotebookOrigin(whole, cells)
    built = build(text, "notebook", Locator(path, spots), origin)
    if isinstance(built, Diagnostic) and built.kind == "syntax-error":
        built = _of_sound_cells(path, numbered, origin) or built
    return built if isinstance(built, Diagnostic) else [built]


def _of_sound_cells(
    path: str, cells: tuple[tuple[int, Cell], ...], origin: NotebookOrigin
) -> Unit | None:
    """Return the unit of the cells that parse, if there is anything about training in them."""
    broken = {}
    for number, cell in cells:
        text, spots = _join([(number, cell)])
        tree = parse(text)
        if isinstance(tree, Fault):
            broken[number] = fault_at(tree, Locator(path, spots))
    if any(fault.kind != "syntax-error" for fault in broken.values()):
        return None  # what was written for Python 2 was so as a whole
    if not any(is_about_training(cell.source) for number, cell in cells if number not in broken):
        return None
    text, spots = _join(cells, broken)
    built = build(text, "notebook", Locator(path, spots), origin)
    if isinstance(built, Diagnostic):
        return None
    told = (n for n, cell in cells if n in broken and is_about_training(cell.source))
    return replace(built, left_out=tuple(broken[number] for number in told))


def _join(
    cells: Iterable[tuple[int, Cell]], broken: Collection[int] = ()
) -> tuple[str, tuple[Spot, ...]]:
    parts = []
    spots = []
    for number, cell in cells:
        source = hide_all(cell.source) if number in broken else neutralise(cell.source)
        asked = _INDENTED if _is_indented(source) else ""
        parts.append(f"{asked}{_BOUNDARY}{number}\n{source}\n")
        spots.append(Spot(1, cell=number))
        spots.extend(Spot(line + 1, cell=number) for line in range(source.count("\n") + 1))
    return "".join(parts), tuple(spots)


def _is_indented(cell: str) -> bool:
    r"""Say whether all code of a cell is further in, which Python refuses and IPython accepts.

    >>> _is_indented("\n    # one\n    x = 1"), _is_indented("# one\n    x = 1")
    (True, False)
    """
    lines = [line for line in cell.split("\n") if line.strip()]
    code = next((line for line in lines if not line.lstrip().startswith("#")), "")
    return code[:1].isspace() and _indent(code) == _indent(lines[0])


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _code_cells(notebook: dict[str, Any]) -> list[Cell]:
    """Return the Python cells of a notebook of format 4, or of format 3 with its worksheets."""
    if not _is_python(notebook.get("metadata") or {}):
        return []
    if "cells" not in notebook and "worksheets" not in notebook:
        msg = "it has no cells"
        raise ValueError(msg)
    sheets = notebook.get("worksheets") or [notebook]
    code = [cell for sheet in sheets for cell in sheet["cells"] if cell.get("cell_type") == "code"]
    found = []
    for cell in code:
        span = cell["source"] if "source" in cell else cell["input"]
        if not isinstance(span.value, str) and not all(isinstance(s, str) for s in span.value):
            msg = "the source of a cell is no text"
            raise ValueError(msg)
        if cell.get("language", "python") == "python":
            written = span.value if isinstance(span.value, str) else "".join(span.value)
            found.append(Cell(plain(written), span))
    return found


def _is_python(metadata: dict[str, Any]) -> bool:
    kernel = metadata.get("kernelspec") or {}
    info = metadata.get("language_info") or {}
    language = info.get("name") or kernel.get("language") or "python"
    return "python" in str(language).lower()


def _pieces(source: str) -> list[str]:
    """Cut a source as Jupyter does: one string per line, each with its newline."""
    return re.findall(r"[^\n]*\n|[^\n]+\Z", source)
