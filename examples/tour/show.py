"""Printing for the tour: headings, tables, source code side by side, a progress bar."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

BAR = 30


def heading(text: str) -> None:
    print(f"\n{text}\n{'=' * len(text)}\n")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows under their columns: the first to the left, numbers to the right.

    >>> print(table(["loop", "error"], [["textbook", "0.5"]]))
    loop      error
    --------  -----
    textbook    0.5
    """
    every = [columns, *rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(columns))]
    lines = []
    for row in (columns, ["-" * width for width in widths], *rows):
        first, *numbers = row
        cells = [
            first.ljust(widths[0]),
            *(n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def body_of(function: Callable[..., object]) -> list[str]:
    """Return the source of a function without its signature, docstring and words to the checker."""
    source = textwrap.dedent(inspect.getsource(function))
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.FunctionDef)
    has_docstring = ast.get_docstring(definition) is not None
    first = definition.body[int(has_docstring)]
    lines = [line.partition("  # instep:")[0] for line in source.splitlines()[first.lineno - 1 :]]
    return textwrap.dedent("\n".join(lines)).splitlines()


def side_by_side(left: tuple[str, list[str]], right: tuple[str, list[str]]) -> str:
    """Put two titled blocks of text beside each other."""
    width = max(map(len, [left[0], *left[1]]))
    pairs = [(left[0], right[0]), ("-" * width, "-" * max(map(len, [right[0], *right[1]])))]
    pairs += zip_longest(left[1], right[1], fillvalue="")
    return "\n".join(f"{one:<{width}}  |  {other}".rstrip() for one, other in pairs)


def progress(steps: range, label: str) -> Iterator[int]:
    """Go through the steps and show how far they are.

    On a terminal one line is redrawn; elsewhere (a file, a log) a line is printed at each quarter.
    """
    total, is_terminal = len(steps), sys.stdout.isatty()
    for done, step in enumerate(steps, start=1):
        yield step
        if is_terminal:
            filled = BAR * done // total
            end = "\n" if done == total else ""
            print(f"\r{label} [{'#' * filled:<{BAR}}] {done}/{total}", end=end, flush=True)
        elif done * 4 // total != (done - 1) * 4 // total:
            print(f"{label} {done}/{total}", flush=True)
