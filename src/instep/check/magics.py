r"""IPython's own syntax, hidden from the parser without moving a line and brought back after.

A magic becomes `pass` and a comment that holds it, behind a character that no one types:

>>> hidden = neutralise("%matplotlib inline\nfiles = !ls\nloss?")
>>> for line in hidden.splitlines(): print(line.replace(_MARK, "|"))
pass  #|%matplotlib inline
files = None  #|!ls
pass  #|loss?
>>> print(revive(hidden))
%matplotlib inline
files = !ls
loss?
"""

from __future__ import annotations

import re

from instep.trace.pattern import pattern
from instep.trace.plain import dataclass

_MARK = "\x1f"
_LIKELY = pattern(r"^[ \t]*(?:[%!?]|(?:pip|conda|mamba)[ \t])|\?[ \t]*$|=[ \t]*[%!]", re.MULTILINE)
_MAGIC = pattern(
    r"(?P<indent>[ \t]*)(?P<rest>[%!?].*|(?:pip|conda|mamba)[ \t]+\w+.*"
    r"|%{0,2}[\w.*\[\]]+\?{1,2}[ \t]*)$"
)
_ASSIGNED = pattern(r"(?P<head>[ \t]*[\w.,\[\] \t]+=[ \t]*)(?P<rest>[%!].*)$")
_PYTHON_CELLS = {"time", "timeit", "capture", "prun", "memit", "mprun", "lprun", "python3"}
_REVIVE = pattern(
    rf"^[^\n{_MARK}]*{_MARK}{_MARK}|(?:pass|None)  #{_MARK}|^[ \t]*#{_MARK}", re.MULTILINE
)
_TOKEN = pattern(r"""\#.*|\"{3}|'{3}|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|[()\[\]{}]""")


def neutralise(cell: str) -> str:
    """Hide magics, shell commands and help; every line stays on its line."""
    if not _LIKELY.search(cell):
        return cell
    lines = cell.split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        name = re.match(r"%%(\w*)", lines[first])
        if name is None or name[1] not in _PYTHON_CELLS:
            return hide_all(cell)
    return "\n".join(_hide(lines))


def hide_all(cell: str) -> str:
    """Hide every line of a cell; `revive` brings them back."""
    return "\n".join(f"#{_MARK}{line}" for line in cell.split("\n"))


def revive(text: str) -> str:
    """Bring back what `neutralise` has hidden, also in lines that were moved or indented."""
    return _REVIVE.sub("", text) if _MARK in text else text


def _hide(lines: list[str]) -> list[str]:
    hidden = []
    state = _State()
    indent: str | None = None  # of a magic that goes on, after a backslash
    for line in lines:
        if indent is not None:
            hidden.append(f"{indent}pass  #{_MARK}{_MARK}{line}")
            indent = indent if line.endswith("\\") else None
        elif state.open:
            hidden.append(line)
            state.read(line)
        elif found := _MAGIC.match(line):
            hidden.append(f"{found['indent']}pass  #{_MARK}{found['rest']}")
            indent = found["indent"] if line.endswith("\\") else None
        elif found := _ASSIGNED.match(line):
            hidden.append(f"{found['head']}None  #{_MARK}{found['rest']}")
            indent = re.match(r"[ \t]*", line)[0] if line.endswith("\\") else None  # type: ignore[index]
        else:
            hidden.append(line)
            state.read(line)
    return hidden


@dataclass
class _State:
    """What is still open at the end of a line: brackets, a long string, a backslash."""

    depth: int = 0
    quote: str | None = None
    continued: bool = False

    @property
    def open(self) -> bool:
        return self.depth > 0 or self.quote is not None or self.continued

    def read(self, line: str) -> None:
        at = 0
        comment = False
        while at < len(line):
            if self.quote is not None:
                closing = re.compile(rf"(?:\\.|[^\\])*?{self.quote}").match(line, at)
                if closing is None:
                    break
                self.quote, at = None, closing.end()
                continue
            token = _TOKEN.search(line, at)
            if token is None:
                break
            at = token.end()
            comment = token[0].startswith("#")
            if token[0] in ('"""', "'''"):
                self.quote = token[0]
            elif token[0] in "([{":
                self.depth += 1
            elif token[0] in ")]}":
                self.depth = max(self.depth - 1, 0)
        self.continued = line.endswith("\\") and not comment
