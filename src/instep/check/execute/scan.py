"""What one look at a module tells before anything is executed: where events can happen, and how
each name is used.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

EVENTS = frozenset(
    {
        "backward", "manual_backward", "zero_grad", "step", "optimizer_step", "grad", "unscale_",
        "clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_gradients", "no_sync",
        "accumulate", "scale_loss", "GradScaler", "no_backward_sync", "add_param_group",
    }
)  # fmt: skip
"""Names whose call or use can be an event, or decides about one."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Scan:
    """The result: `uses` of every name, the functions, and which statements matter."""

    def __init__(self, tree: ast.Module) -> None:
        self.uses: dict[str, set[str]] = {}
        self.definitions: list[tuple[Definition, ast.ClassDef | None]] = []
        self.names: dict[int, frozenset[str]] = {}
        self.hot_names: set[str] = set(EVENTS)
        self.generators: set[int] = set()
        self._hot: dict[int, bool] = {}
        self._visit(tree, None, None)
        self.defined = {code.name for code, _ in self.definitions}
        self._spread()

    def hot(self, node: ast.AST) -> bool:
        """Say whether executing a statement can cause an event."""
        found = self._hot.get(id(node))
        if found is None:
            names = self.names.get(id(node))
            if names is None:
                names = frozenset(_called(node))
            found = not self.hot_names.isdisjoint(names)
            self._hot[id(node)] = found
        return found

    def any_hot(self, nodes: Iterable[ast.AST]) -> bool:
        """Say whether one of some statements can cause an event."""
        return any(self.hot(node) for node in nodes)

    def learn(self, names: set[str]) -> None:
        """Take note of names of other modules in which events happen."""
        if not names <= self.hot_names:
            self.hot_names |= names
            self._hot.clear()
            self._spread()

    def _spread(self) -> None:
        """A function that calls one in which events happen is one itself."""
        waiting = {code.name: self.names[id(code)] for code, _ in self.definitions}
        changed = True
        while changed:
            changed = False
            for name, names in list(waiting.items()):
                if not self.hot_names.isdisjoint(names):
                    # Their callers find them by name; so common a name would heat everything.
                    if name not in {"__init__", "forward", "__call__", "main", "get", "__len__"}:
                        self.hot_names.add(name)
                    del waiting[name]
                    changed = True
        for code, owner in self.definitions:
            special = code.name in {"__init__", "__call__"} and owner is not None
            if special and owner is not None and not EVENTS.isdisjoint(self.names[id(code)]):
                self.hot_names.add(owner.name)

    def _visit(self, node: ast.AST, owner: ast.ClassDef | None, code: ast.AST | None) -> set[str]:
        names: set[str] = set()
        kind = type(node)
        if kind is ast.Call:
            self._use(node.func, names)  # type: ignore[attr-defined]
        elif kind is ast.Attribute:
            if node.attr == "grad":  # type: ignore[attr-defined]
                names.add("grad")
        elif kind is ast.ClassDef:
            owner = node  # type: ignore[assignment]
        elif kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            self.definitions.append((node, owner))  # type: ignore[arg-type]
            code = node
        elif (kind is ast.Yield or kind is ast.YieldFrom) and code is not None:
            self.generators.add(id(code))
        inner_owner = None if code is node else owner
        for field in node._fields:
            value = getattr(node, field, None)
            if type(value) is list:
                for item in value:
                    if isinstance(item, ast.AST):
                        names |= self._visit(item, inner_owner, code)
            elif isinstance(value, ast.AST) and value._fields:
                names |= self._visit(value, inner_owner, code)
        if isinstance(node, ast.stmt):
            self.names[id(node)] = frozenset(names)
            if code is node:  # defining a function causes nothing
                return set()
        return names

    def _use(self, func: ast.AST, names: set[str]) -> None:
        if isinstance(func, ast.Attribute):
            names.add(func.attr)
            receiver = func.value
            name = getattr(receiver, "attr", None) or getattr(receiver, "id", None)
            if name is None and isinstance(receiver, ast.Call):
                name = getattr(receiver.func, "attr", None) or getattr(receiver.func, "id", None)
            if name is not None:
                self.uses.setdefault(name, set()).add(func.attr)
        elif isinstance(func, ast.Name):
            names.add(func.id)
            self.uses.setdefault(func.id, set()).add("()")


def _called(node: ast.AST) -> set[str]:
    names: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            func = inner.func
            if isinstance(func, ast.Attribute):
                names.add(func.attr)
            elif isinstance(func, ast.Name):
                names.add(func.id)
        elif isinstance(inner, ast.Attribute) and inner.attr == "grad":
            names.add("grad")
    return names
