"""The user's program: its modules, the files that their imports mean, and the scopes of names."""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING

from instep.check.execute.scan import Scan
from instep.check.sources import read_units
from instep.check.units import Unit

if TYPE_CHECKING:
    from instep.check.execute.values import Class, Value
    from instep.trace import Place

_MOST_LINES = 6_000  # of a file that is followed because another one imports it


class Module:
    """A parsed file: what does not change from path to path."""

    def __init__(self, unit: Unit, file: str | None) -> None:
        self.unit = unit
        self.file = file
        self.tree = unit.tree
        self.scan = Scan(unit.tree)
        self.places: dict[int, Place] = {}
        self.nodes: dict[Place, ast.AST] = {}
        self.imports = [
            node for node in ast.walk(unit.tree) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        self.guards: dict[int, bool] = {}  # functions that ask whether there is a gradient

    def place(self, node: ast.AST) -> Place:
        """Return the place of a node; the same node has the same place."""
        found = self.places.get(id(node))
        if found is None:
            found = self.unit.locator.place(
                node.lineno,  # type: ignore[attr-defined]
                node.col_offset,  # type: ignore[attr-defined]
                getattr(node, "end_lineno", None),
                getattr(node, "end_col_offset", None),
            )
            self.places[id(node)] = found
            self.nodes[found] = node
        return found


class Scope:
    """The names of a function or of a module, with the scopes around it."""

    __slots__ = ("assigned", "cls", "code", "elsewhere", "module", "names", "outer", "self_value")

    def __init__(
        self,
        module: Module,
        outer: Scope | None = None,
        code: ast.AST | None = None,
    ) -> None:
        self.module = module
        self.outer = outer
        self.code = code
        self.names: dict[str, Value] = {}
        self.assigned: dict[str, int] = {}  # the iteration in which a name was last assigned
        self.elsewhere: dict[str, Scope] = {}  # names declared global or nonlocal
        self.cls: Class | None = None
        self.self_value: Value = None

    def top(self) -> Scope:
        """Return the scope of the module."""
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        return scope


class Project:
    """The files that belong together: finds what an import of one of them means."""

    def __init__(self) -> None:
        self._loaded: dict[str, Module | None] = {}
        self._roots: dict[str, list[str]] = {}
        self._main: tuple[str, Module] | None = None
        self._found: dict[tuple[str, str, int], tuple[str | None, tuple[str, ...]]] = {}
        self.asked: set[str] = set()
        """Files that the imports since the last `adopt` mean or could mean: what is in them, and
        whether they are there, may change a judgement."""

    def adopt(self, unit: Unit, file: str | None) -> Module:
        """Take a unit that is read already as the one to judge.

        It is nobody else's: another text of the same file may be judged next.
        """
        module = Module(unit, file)
        self._main = None
        if file is not None and unit.kind == "python":
            self._main = (os.path.abspath(file), module)
        self.asked = set()
        return module

    def find(self, importer: Module, dotted: str, level: int) -> Module | None:
        """Return the module that an import in `importer` names, if it is in the project."""
        if importer.file is None or importer.unit.kind == "markdown":
            return None
        here = os.path.dirname(os.path.abspath(importer.file))
        at = (here, dotted, level)
        if at not in self._found:
            self._found[at] = self._locate(here, dotted, level)
        file, tried = self._found[at]
        self.asked.update(tried)
        return None if file is None else self._load(file)

    def _locate(self, here: str, dotted: str, level: int) -> tuple[str | None, tuple[str, ...]]:
        """Return the file that an import means, and all files that were looked for."""
        parts = [part for part in dotted.split(".") if part]
        if level:
            for _ in range(level - 1):
                here = os.path.dirname(here)
            roots = [here]
        elif not parts or parts[0] in _OUTSIDE:
            return None, ()
        else:
            roots = self._search(here)
        tried: list[str] = []
        for root in roots:
            base = os.path.join(root, *parts) if parts else root
            for candidate in (base + ".py", os.path.join(base, "__init__.py")):
                tried.append(candidate)
                if os.path.isfile(candidate):
                    return candidate, tuple(tried)
        return None, tuple(tried)

    def _search(self, folder: str) -> list[str]:
        found = self._roots.get(folder)
        if found is None:
            found, current = [], folder
            for _ in range(5):
                found.append(current)
                marks = (".git", "pyproject.toml", "setup.py", "requirements.txt")
                parent = os.path.dirname(current)
                if parent == current or any(
                    os.path.exists(os.path.join(current, mark)) for mark in marks
                ):
                    source = os.path.join(current, "src")
                    if os.path.isdir(source):
                        found.append(source)
                    break
                current = parent
            self._roots[folder] = found
        return found

    def _load(self, file: str) -> Module | None:
        if self._main is not None and file == self._main[0]:
            return self._main[1]
        if file not in self._loaded:
            units = read_units(file, shown=os.path.relpath(file), wanted=_worth_following)
            one = isinstance(units, list) and len(units) == 1
            self._loaded[file] = Module(units[0], file) if one else None  # type: ignore[index]
        return self._loaded[file]


def _worth_following(text: str) -> bool:
    return _RELATED.search(text) is not None and text.count("\n") <= _MOST_LINES


_RELATED = re.compile(r"backward\(|zero_grad|\.step\(|clip_grad|optim|[Ll]oss|accum|scaler")
_OUTSIDE = frozenset(
    {"torch", "numpy", "os", "sys", "math", "time", "random", "json", "argparse", "transformers",
     "torchvision", "accelerate", "lightning", "pytorch_lightning", "deepspeed", "apex", "timm",
     "tqdm", "typing", "collections", "itertools", "functools", "logging", "copy", "datasets"}
)  # fmt: skip
