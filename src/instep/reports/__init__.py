"""What the checker says, in the format somebody wants to read: text, json, sarif or github.

Reports never open files: the lines they quote come from a `Source` that is handed to them, and
whatever comes from a user's file is made harmless before it is printed.

>>> from instep.reports import render
>>> from instep.rules import Finding, Severity
>>> from instep.trace import Place
>>> place = Place("train.py", 2, column=0, end_line=2, end_column=16)
>>> finding = Finding(
...     "INS101", "missing-zero-grad", Severity.ERROR, place, "gradients of all batches add up."
... )
>>> lines = ["loss.backward()", "optimizer.step()"]
>>> print(render("text", [finding], lambda path, cell: lines), end="")
train.py:2:1: error INS101 missing-zero-grad: gradients of all batches add up.
  |
2 | optimizer.step()
  | ^^^^^^^^^^^^^^^^
  = to do: Clear once per update.
  = more: instep explain missing-zero-grad
"""

from instep.reports.colours import wants_colour
from instep.reports.options import Options, RuleInfo
from instep.reports.positions import Source, split_lines
from instep.reports.registry import FORMATS, render, renderer

__all__ = [
    "FORMATS",
    "Options",
    "RuleInfo",
    "Source",
    "render",
    "renderer",
    "split_lines",
    "wants_colour",
]
