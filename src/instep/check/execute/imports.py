"""Imports: modules of the project are executed, all others are references."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute.values import Ref, Unknown

if TYPE_CHECKING:
    import ast

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module, Scope
    from instep.check.execute.values import Value

_MOST_DEPTH = 8
"""Modules that import each other."""


def import_(m: Machine, node: ast.Import, scope: Scope) -> int | None:
    """Execute `import a.b as c`."""
    for alias in node.names:
        found = m.project.find(scope.module, alias.name, 0)
        first = alias.name.partition(".")[0]
        if found is not None and (alias.asname or "." not in alias.name):
            scope.names[alias.asname or first] = namespace(m, found, alias.name)
        else:
            scope.names[alias.asname or first] = Ref(alias.name if alias.asname else first)
    return None


def import_from(m: Machine, node: ast.ImportFrom, scope: Scope) -> int | None:
    """Execute `from a import b`."""
    dotted = node.module or ""
    found = m.project.find(scope.module, dotted, node.level) if dotted or node.level else None
    for alias in node.names:
        if alias.name != "*":
            scope.names[alias.asname or alias.name] = _imported(m, node, found, alias.name, scope)
        elif found is not None:
            scope.names.update(
                {k: v for k, v in load(m, found).names.items() if not k.startswith("__")}
            )
    return None


def _imported(
    m: Machine, node: ast.ImportFrom, found: Module | None, name: str, scope: Scope
) -> Value:
    if node.module is None:
        # The package is being imported just now, and what it imports itself may not be there yet.
        beside = m.project.find(scope.module, name, node.level)
        if beside is not None:
            return namespace(m, beside, name)
    if found is not None:
        names = load(m, found).names
        if name in names:
            return names[name]
    dotted = f"{node.module}.{name}" if node.module else name
    inner = m.project.find(scope.module, dotted, node.level)
    return namespace(m, inner, name) if inner is not None else Ref(dotted)


def namespace(m: Machine, module: Module, dotted: str) -> Value:
    """Return a module of the project as a value whose attributes are its names."""
    made = Unknown(f"module:{id(module)}", module.unit.path)
    made.attrs = load(m, module).names
    made.stem = dotted.rpartition(".")[2]
    return made


def load(m: Machine, module: Module) -> Scope:
    """Execute a module that another one imports, once per path."""
    if module in m.scopes:
        return m.scopes[module]
    scope = m.scope_of(module)
    scope.names["__name__"] = "imported"
    if m.depth < _MOST_DEPTH:
        loops, m.loops = m.loops, []
        m.depth += 1
        try:
            m.run(module.tree.body, scope)
        finally:
            m.depth -= 1
            m.loops = loops
    return scope
