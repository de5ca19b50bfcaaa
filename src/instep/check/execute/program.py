"""The user's program: its modules, the files that their imports mean, and the scopes of names."""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING, Any, TypeVar

from instep.check.execute.around import Around
from instep.check.execute.scan import Scan
from instep.check.execute.wording import words
from instep.check.sources import read_units, units_from_bytes
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from instep.check.execute.definitions import Class
    from instep.check.execute.journal import Loop
    from instep.check.execute.values import Value
    from instep.check.units import Unit
    from instep.trace import Place

_V = TypeVar("_V")
_UNREAD = object()
_MOST_LINES = 6_000  # of a file that is followed because another one imports it
_MOST_FOLLOWED = 1_500_000
"""Characters of such files, for one that imports them: a library's own lead to all of it."""
_RELATED = re.compile(
    r"backward\(|zero_grad|\.step\(|clip_grad|optim|[Ll]oss|accum|scaler|\.grad\b|nn\.Module\b"
)
_OUTSIDE = frozenset(
    {"torch", "numpy", "os", "sys", "math", "time", "random", "json", "argparse", "transformers",
     "torchvision", "accelerate", "lightning", "pytorch_lightning", "deepspeed", "apex", "timm",
     "tqdm", "typing", "collections", "itertools", "functools", "logging", "copy", "datasets",
     "instep"}
)  # fmt: skip


class Module:
    """A parsed file: what does not change from path to path."""

    def __init__(self, unit: Unit, file: str | None) -> None:
        self.unit = unit
        self.file = file
        self.tree = unit.tree
        self.scan = Scan(unit.tree)
        self.nodes: dict[Place, ast.AST] = {}
        self._places: dict[ast.AST, Place] = {}
        self._spelled: dict[ast.AST, str] = {}
        self._keys: dict[ast.AST, str] = {}
        self._read: dict[object, dict[ast.AST, Any]] = {}
        self._lines: list[str] | None = None
        self._is_old: bool | None = None
        self._drops: bool | None = None
        # What was found out about a function, a class or a branch from its text.
        self.guards: dict[ast.AST, bool] = {}
        self.resets: dict[ast.AST, bool] = {}
        self.moduli: dict[ast.AST, bool] = {}
        self.choices: set[ast.AST] = set()
        self.picks: dict[ast.AST, set[ast.AST]] = {}
        self.adding: dict[ast.AST, frozenset[ast.AST]] = {}
        self.layers: dict[ast.AST, tuple[bool | None, bool | None]] = {}
        self.modeless: dict[ast.AST, bool] = {}
        self.moded: dict[ast.AST, bool] = {}

    @property
    def lines(self) -> list[str]:
        """The lines of the text."""
        if self._lines is None:
            self._lines = self.unit.text.split("\n")
        return self._lines

    @property
    def is_old(self) -> bool:
        """Whether it can only run on a torch from before 0.5: schedulers came first then."""
        if self._is_old is None:
            self._is_old = "volatile=True" in self.unit.text or ".data[0]" in self.unit.text
        return self._is_old

    @property
    def drops(self) -> bool:
        """Whether dropout may be on in its models: no rate of it is set to 0."""
        if self._drops is None:
            self._drops = "drop" not in self.unit.text or not self.scan.undropped
        return self._drops

    def text(self, node: ast.stmt) -> str:
        """Return the lines that a statement stands on."""
        return "\n".join(self.lines[node.lineno - 1 : node.end_lineno])

    def spelled(self, node: ast.AST) -> str:
        """Return the source of an expression, in one way of writing it."""
        if type(node) is ast.Name:
            return node.id
        found = self._spelled.get(node)
        if found is None:
            found = self._spelled[node] = words(node)
        return found

    def counts(self, node: ast.AST) -> bool:
        """Say whether something in a loop hangs on the rest of a division."""
        found = self.moduli.get(node)
        if found is None:
            found = self.moduli[node] = "%" in self.unit.text and any(
                isinstance(part, ast.Mod) for part in walk(node)
            )
        return found

    def read(self, ask: Callable[[Any, Module], _V], node: ast.AST) -> _V:
        """Return what a function reads off the text of a node; it is asked once, however often the
        node is executed.
        """
        known = self._read.get(ask)
        if known is None:
            known = self._read[ask] = {}
        found: Any = known.get(node, _UNREAD)
        if found is _UNREAD:
            found = known[node] = ask(node, self)
        answer: _V = found
        return answer

    def key(self, node: ast.AST) -> str:
        """Return a text by which the unknown value of a node is the same wherever it is met."""
        found = self._keys.get(node)
        if found is None:
            line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
            found = self._keys[node] = f"{id(self)}:{line}:{column}"
        return found

    def place(self, node: ast.AST) -> Place:
        """Return the place of a node; the same node has the same place."""
        found = self._places.get(node)
        if found is None:
            line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
            found = self.unit.locator.place(
                line,
                column,
                getattr(node, "end_lineno", None),
                getattr(node, "end_col_offset", None),
                function=self.scan.function_at(line, column),
            )
            self._places[node] = found
            self.nodes[found] = node
        return found


class Scope:
    """The names of a function or of a module, with the scopes around it."""

    __slots__ = (
        "assigned", "cls", "code", "elsewhere", "emptied", "module", "names", "outer", "self_value",
    )  # fmt: skip

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
        self.emptied: dict[str, set[Loop]] = {}  # the loops in which it let go of what it held
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

    def __init__(self, texts: Mapping[str, bytes] | None = None) -> None:
        """`texts` are the contents of files, by their absolute paths, that are not written yet."""
        self._texts = texts or {}
        self._loaded: dict[str, Module | None] = {}
        self._roots: dict[str, list[str]] = {}
        self._main: tuple[str, Module] | None = None
        self._found: dict[tuple[str, str, int], tuple[str | None, tuple[str, ...]]] = {}
        self._folders: dict[str, str] = {}
        self._present: dict[tuple[str, str], bool] = {}
        self._around = Around()
        self._followed: set[str] = set()
        self._length = 0  # of those that were followed since the last `adopt`
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
            self._main = (os.path.abspath(file), module)  # noqa: PTH100  # no links followed
        self.asked, self._followed, self._length = set(), set(), 0
        return module

    def find(self, importer: Module, dotted: str, level: int) -> Module | None:
        """Return the module that an import in `importer` names, if it is in the project."""
        if importer.file is None or importer.unit.kind == "markdown":
            return None
        here = self._folders.get(importer.file)
        if here is None:
            # Imports are many, and asking for the working folder is slow.
            here = os.path.dirname(os.path.abspath(importer.file))  # noqa: PTH100, PTH120
            self._folders[importer.file] = here
        at = (here, dotted, level)
        if at not in self._found:
            self._found[at] = self._locate(here, dotted, level)
        file, tried = self._found[at]
        self.asked.update(tried)
        return None if file is None else self._load(file)

    def torch_for(self, module: Module) -> tuple[int, int] | None:
        """Return the torch that the files around a module say it is for."""
        for folder in self._folders_of(module):
            found = self._around.torch(folder)
            self.asked |= self._around.read[folder]
            if found is not None:
                return found
        return None

    def usual(self, module: Module, name: str) -> int:
        """Return the number that the files around a module give to an option; 0: they do not."""
        for folder in self._folders_of(module):
            found = self._around.number(folder, name)
            self.asked |= self._around.read[folder]
            if found:
                return found
        return 0

    def _folders_of(self, module: Module) -> list[str]:
        """Return the folders from that of a module up to the root of its project, or to the next
        one where nothing says what the root is.
        """
        if module.file is None:
            return []
        here = os.path.dirname(os.path.abspath(module.file))  # noqa: PTH100, PTH120
        found = [folder for folder in self._search(here) if here.startswith(folder)]
        return found if _is_root(found[-1]) else found[:2]

    def meant(self, importer: Module, node: ast.Import | ast.ImportFrom) -> list[Module]:
        """Return the modules of the project that an import may mean."""
        if isinstance(node, ast.Import):
            found = [self.find(importer, alias.name, 0) for alias in node.names]
        else:
            names = ["", *(alias.name for alias in node.names)]
            dotted = [f"{node.module or ''}.{name}".strip(".") for name in names]
            found = [self.find(importer, name, node.level) for name in dotted]
        return [module for module in found if module is not None]

    def _locate(self, here: str, dotted: str, level: int) -> tuple[str | None, tuple[str, ...]]:
        """Return the file that an import means, and all files that were looked for."""
        parts = [part for part in dotted.split(".") if part]
        if level:
            for _ in range(level - 1):
                here = os.path.dirname(here)  # noqa: PTH120
            roots = [here]
        elif not parts or parts[0] in _OUTSIDE:
            return None, ()
        else:
            roots = self._search(here)
        tried: list[str] = []
        for root in roots:
            base = os.sep.join((root.rstrip(os.sep), *parts)) if parts else root  # noqa: PTH118
            is_there = not parts or self._has(root, parts[0])
            for candidate in (f"{base}.py", f"{base}{os.sep}__init__.py"):
                tried.append(candidate)
                if is_there and os.path.isfile(candidate):  # noqa: PTH113
                    return candidate, tuple(tried)
        return None, tuple(tried)

    def _has(self, root: str, name: str) -> bool:
        """Say whether anything in a folder can be meant by what begins with this name: most imports
        mean an installed package, each by many names.
        """
        at = (root, name)
        found = self._present.get(at)
        if found is None:
            path = os.path.join(root, name)  # noqa: PTH118
            found = os.path.isfile(f"{path}.py") or os.path.isdir(path)  # noqa: PTH112, PTH113
            self._present[at] = found
        return found

    def _search(self, folder: str) -> list[str]:
        """Return where absolute imports are looked for: the folders up to the project's root."""
        found = self._roots.get(folder)
        if found is None:
            found, current = [], folder
            for _ in range(5):
                found.append(current)
                parent = os.path.dirname(current)  # noqa: PTH120
                if parent == current or _is_root(current):
                    source = os.path.join(current, "src")  # noqa: PTH118
                    if os.path.isdir(source):  # noqa: PTH112
                        found.append(source)
                    break
                current = parent
            self._roots[folder] = found
        return found

    def _load(self, file: str) -> Module | None:
        if self._main is not None and file == self._main[0]:
            return self._main[1]
        if file not in self._followed and self._length > _MOST_FOLLOWED:
            return None
        if file not in self._loaded:
            # A package's own file may hold nothing but the names that others import from it.
            worth = None if file.endswith("__init__.py") else _worth_following
            shown = os.path.relpath(file)
            if file in self._texts:
                units = units_from_bytes(self._texts[file], shown, wanted=worth)
            else:
                units = read_units(file, shown=shown, wanted=worth)
            one = units[0] if isinstance(units, list) and len(units) == 1 else None
            self._loaded[file] = None if one is None else Module(one, file)
        found = self._loaded[file]
        if found is not None and file not in self._followed:
            self._followed.add(file)
            self._length += len(found.unit.text)
        return found


def _is_root(folder: str) -> bool:
    marks = (".git", "pyproject.toml", "setup.py", "requirements.txt")
    return any(os.path.exists(os.path.join(folder, mark)) for mark in marks)  # noqa: PTH110, PTH118


def _worth_following(text: str) -> bool:
    return _RELATED.search(text) is not None and text.count("\n") <= _MOST_LINES
