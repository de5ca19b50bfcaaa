"""From paths to units: reading files of every kind, and surviving what is in them.

Nothing that is read is ever imported or run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from instep.check.decoding import decode
from instep.check.lines import plain
from instep.check.parsing import MAX_BYTES, Fault
from instep.check.problems import Diagnostic, diagnose
from instep.check.units import (
    Locator,
    PlainOrigin,
    Splice,
    Spot,
    Unit,
    UnitKind,
    build,
    fault_at,
    merge_back,
)
from instep.trace import Place

if TYPE_CHECKING:
    from instep.check.units import Wanted

__all__ = [
    "MARKDOWN_SUFFIXES",
    "PYTHON_SUFFIXES",
    "STDIN",
    "SUFFIXES",
    "Diagnostic",
    "Locator",
    "Splice",
    "Spot",
    "Unit",
    "UnitKind",
    "kind_of",
    "merge_back",
    "read_units",
    "units_from_bytes",
]

STDIN = "-"
PYTHON_SUFFIXES = frozenset({".py", ".pyw"})
MARKDOWN_SUFFIXES = frozenset({".md", ".markdown", ".mdx", ".qmd", ".rmd", ".rst", ".txt"})
SUFFIXES = PYTHON_SUFFIXES | MARKDOWN_SUFFIXES | {".ipynb"}
_HEAD = 1_000
"""Characters in which an export says that it is one: below its title."""
_MOST = {"python": MAX_BYTES, "stdin": MAX_BYTES, "markdown": 4 << 20, "notebook": 64 << 20}


def kind_of(path: str | Path) -> UnitKind:
    """Return how a file is read: by its suffix, and as Python if that says nothing.

    >>> kind_of("README.md"), kind_of("train.py"), kind_of("bin/train")
    ('markdown', 'python', 'python')
    """
    if str(path) == STDIN:
        return "stdin"
    suffix = Path(path).suffix.lower()
    if suffix in MARKDOWN_SUFFIXES:
        return "markdown"
    return "notebook" if suffix == ".ipynb" else "python"


def read_units(
    path: str | Path, *, shown: str | None = None, wanted: Wanted | None = None
) -> list[Unit] | Diagnostic:
    """Read a file, or standard input for "-", into units; never raises for what a file holds.

    `shown` is the path that the user sees. `wanted` is asked about a text before it is parsed:
    where it says no, there is no unit, and what only parsing could find wrong is not reported.
    """
    kind = kind_of(path)
    name = str(path) if shown is None else shown
    if kind == "stdin":
        return units_from_bytes(sys.stdin.buffer.read(), name, kind=kind, wanted=wanted)
    file = Path(path)
    try:
        if not file.is_file():
            return diagnose("unreadable", Place(name, 1), "it is not a file.")
        size = file.stat().st_size
        data = b"" if size > _MOST[kind] else file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        return diagnose("unreadable", Place(name, 1), f"it cannot be read ({reason}).")
    if size > _MOST[kind]:
        return _oversized(name, kind, size)
    return units_from_bytes(data, name, kind=kind, wanted=wanted)


def units_from_bytes(
    data: bytes, path: str, *, kind: UnitKind | None = None, wanted: Wanted | None = None
) -> list[Unit] | Diagnostic:
    r"""Make units of a file's content; `kind` follows from the path if it is not given.

    >>> [unit] = units_from_bytes(b"x = 1\r\n", "train.py")
    >>> unit.text, unit.write_back("x = 2\n")
    ('x = 1\n', 'x = 2\r\n')
    """
    kind = kind or kind_of(path)
    if len(data) > _MOST[kind]:
        return _oversized(path, kind, len(data))
    if kind in {"python", "stdin"}:
        return _python_units(data, path, kind, wanted)
    try:
        whole = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if kind == "markdown" and b"```" not in data and b"~~~" not in data:
            return []  # not a text that anybody writes code in
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte {data[error.start]:#04x} is not utf-8."
        return diagnose("undecodable", Place(path, line), byte)
    # Imported when there is one: most runs meet Python only.
    if kind == "notebook":
        from instep.check.notebooks import notebook_units  # noqa: PLC0415

        return notebook_units(whole, path, wanted)
    from instep.check.markdown import markdown_units  # noqa: PLC0415

    return markdown_units(whole, path, wanted)


def _python_units(
    data: bytes, path: str, kind: UnitKind, wanted: Wanted | None
) -> list[Unit] | Diagnostic:
    decoded = decode(data)
    locator = Locator(path)
    if isinstance(decoded, Fault):
        return fault_at(decoded, locator)
    if wanted is not None and not wanted(decoded.whole):
        return []
    text = plain(decoded.whole.removeprefix("\ufeff"))
    origin = PlainOrigin(decoded.whole)
    if _is_exported(text):
        from instep.check.exports import ExportOrigin, neutralise  # noqa: PLC0415  # seldom there

        text, origin = neutralise(text), ExportOrigin(decoded.whole)
    built = build(text, kind, locator, origin, decoded.encoding)
    return built if isinstance(built, Diagnostic) else [built]


def _is_exported(text: str) -> bool:
    """Say whether Colab has written a notebook into a Python file, with the magics it had."""
    return "Automatically generated by Colab" in text[:_HEAD]


def _oversized(path: str, kind: UnitKind, size: int) -> list[Unit] | Diagnostic:
    if kind == "markdown":
        return []  # logs and data sets end in .txt too
    what = f"it has {size:,} bytes; at most {_MOST[kind]:,} are read."
    return diagnose("too-large", Place(path, 1), what)
