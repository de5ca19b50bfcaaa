"""Comments that stand above a statement, and whether they speak of it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.rules.source import end_of, start_of

if TYPE_CHECKING:
    import ast

    from instep.rules.source import Source

# Comments that say something about lines below or about the file, not about one statement:
# cells of notebooks (the unit separator marks those of .ipynb files), shebangs, encodings.
_NO_HEADING = ("# %%", "#%%", "#\x1f", "#!", "# -*-", "# In[")


def heading(source: Source, statement: ast.stmt) -> int:
    """Return the first line of a statement with the comment lines right above it."""
    layout = source.layout
    line = start_of(statement).line
    indent = layout.indent(line)
    while layout.is_comment(line - 1) and layout.indent(line - 1) == indent:
        if layout.line(line - 1).lstrip().startswith(_NO_HEADING):
            break
        line -= 1
    return line


def first_line(source: Source, statement: ast.stmt) -> int:
    """Return the first line that goes where a statement goes.

    A comment above belongs to the statement alone only if no other follows without a gap.
    """
    below = end_of(statement).line + 1
    layout = source.layout
    line = start_of(statement).line
    own = layout.is_blank(below) or layout.is_comment(below)
    if own or len(layout.indent(below)) < len(layout.indent(line)):
        return heading(source, statement)
    return line
