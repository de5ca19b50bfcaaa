"""The user's program: its modules, the files that their imports mean, and the scopes of names."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from instep.check.execute.scan import Scan
from instep.check.sources import read_units
from instep.check.units import Unit

if TYPE_CHECKING:
    import ast

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

    def __init__(self, file: str | os.PathLike[str] | None = None) -> None:
        self._loaded: dict[str, Module | None] = {}
        self._roots: dict[str, list[str]] = {}
        self.read: set[str] = set()  # files that were opened, for whoever keeps a cache

    def adopt(self, unit: Unit, file: str | None) -> Module:
        """Take a unit that is read already."""
        module = Module(unit, file)
        if file is not None and unit.kind == "python":
            self._loaded[os.path.abspath(file)] = module
        return module

    def find(self, importer: Module, dotted: str, level: int) -> Module | None:
        """Return the module that an import in `importer` names, if it is in the project."""
        if importer.file is None or importer.unit.kind == "markdown":
            return None
        parts = [part for part in dotted.split(".") if part]
        here = os.path.dirname(os.path.abspath(importer.file))
        if level:
            for _ in range(level - 1):
                here = os.path.dirname(here)
            roots = [here]
        elif not parts or parts[0] in _OUTSIDE:
            return None
        else:
            roots = self._search(here)
        for root in roots:
            base = os.path.join(root, *parts) if parts else root
            for candidate in (base + ".py", os.path.join(base, "__init__.py")):
                if os.path.isfile(candidate):
                    return self._load(candidate)
        return None

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
        file = os.path.abspath(file)
        if file not in self._loaded:
            self._loaded[file] = None  # two files that import each other
            self.read.add(file)
            units = read_units(file, shown=os.path.relpath(file), wanted=_worth_following)
            if isinstance(units, list) and len(units) == 1:
                self._loaded[file] = Module(units[0], file)
        return self._loaded[file]


def _worth_following(text: str) -> bool:
    return _RELATED.search(text) is not None and text.count("\n") <= _MOST_LINES


_RELATED = re.compile(r"backward\(|zero_grad|\.step\(|clip_grad|optim|[Ll]oss|accum|scaler")
_OUTSIDE = frozenset(
    {"torch", "numpy", "os", "sys", "math", "time", "random", "json", "argparse", "transformers",
     "torchvision", "accelerate", "lightning", "pytorch_lightning", "deepspeed", "apex", "timm",
     "tqdm", "typing", "collections", "itertools", "functools", "logging", "copy", "datasets"}
)  # fmt: skip
