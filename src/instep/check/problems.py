"""What stops the checker: for one file a diagnostic, for the whole run an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from instep.errors import four_lines
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from instep.trace import Place

Kind = Literal[
    "syntax-error",
    "python-2",
    "undecodable",
    "null-bytes",
    "too-large",
    "too-deep",
    "bad-notebook",
    "unreadable",
    "crashed",
]

_ADVICE: dict[Kind, tuple[str, str]] = {
    "syntax-error": (
        "it does not parse with the Python that runs instep.",
        "mend the syntax, or exclude the file.",
    ),
    "python-2": (
        "only Python 3 is checked.",
        "port the file, or exclude it.",
    ),
    "undecodable": (
        "its bytes are no text in the encoding it declares (UTF-8 unless a comment says other).",
        "save it as UTF-8, or declare its encoding: # -*- coding: latin-1 -*-",
    ),
    "null-bytes": (
        "Python source holds no null bytes; the file is binary, UTF-16 or damaged.",
        "save it as UTF-8, or exclude it.",
    ),
    "too-large": (
        "a file of that size is data or generated, and would hold up the run.",
        "exclude it, or move the training loop into a file of its own.",
    ),
    "too-deep": (
        "following it would need more nested calls than Python allows.",
        "split the expression or the chain of elif, or exclude the file.",
    ),
    "bad-notebook": (
        "it is not the JSON of a Jupyter notebook.",
        "open and save it in Jupyter, resolve merge conflicts, or exclude it.",
    ),
    "unreadable": (
        "the system does not let instep read it.",
        "check that it is a file and that you may read it.",
    ),
    "crashed": (
        "this is a mistake of instep, not of the file.",
        "please report it with the file, if you may; exclude the file until then.",
    ),
}


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Why a file was not checked; there is one per file, and the run goes on.

    >>> from instep.trace import Place
    >>> print(diagnose("too-deep", Place("net.py", 3), "an expression is nested too deeply."))
    net.py:3: an expression is nested too deeply.
      why:  following it would need more nested calls than Python allows.
      fix:  split the expression or the chain of elif, or exclude the file.
      more: instep explain not-checked
    """

    kind: Kind
    place: Place
    what: str
    why: str
    fix: str
    more: str

    def __str__(self) -> str:
        what = f"{self.place}: {self.what}"
        return four_lines(what, why=self.why, fix=self.fix, more=self.more)


def diagnose(kind: Kind, place: Place, what: str) -> Diagnostic:
    """Return the diagnostic of that kind, with the advice that goes with it."""
    why, fix = _ADVICE[kind]
    return Diagnostic(kind, place, what, why=why, fix=fix, more="not-checked")
