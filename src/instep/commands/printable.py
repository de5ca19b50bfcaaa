"""What is said on a terminal, where it speaks of names and lines that somebody else has chosen.

A name may hold a line break. What comes after it would begin a line, which a terminal takes for
somebody else's word and a runner of GitHub for a command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.errors import InstepError, four_lines
from instep.reports.escape import visible

if TYPE_CHECKING:
    from instep.check.problems import Diagnostic


def printable(problem: InstepError | Diagnostic) -> str:
    r"""Return a message in its four lines, and nothing in them that acts on a terminal.

    >>> from instep.errors import CheckError
    >>> evil = CheckError("there is no a\n::error::\x1b[2J", why="w.", fix="f.", more="paths")
    >>> print(printable(evil))
    there is no a\n::error::\x1b[2J
      why:  w.
      fix:  f.
      more: instep explain paths
    """
    where = "" if isinstance(problem, InstepError) else f"{problem.place}: "
    words = {name: visible(getattr(problem, name)) for name in ("why", "fix", "more")}
    return four_lines(visible(where + problem.what), **words)


def unharmed(code: str) -> str:
    r"""Return source for people to read: its tabs stay, and nothing else acts on a terminal.

    >>> unharmed("+\tprint('\x1b[2J')\n")
    "+\tprint('\\x1b[2J')\n"
    """
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in code.split("\n"))
