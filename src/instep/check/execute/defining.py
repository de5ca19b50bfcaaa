"""Definitions: functions and classes as values, and what their decorators say."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute.definitions import Class, Function
from instep.check.execute.program import Scope
from instep.check.execute.roles import NO_GRAD, last
from instep.check.execute.values import Ref, unify

if TYPE_CHECKING:
    from instep.check.execute.machine import Machine
    from instep.check.execute.scan import Definition

_SETTINGS = frozenset({"dataclass", "dataclasses", "define", "frozen", "attrs", "s"})
_SETTINGS_BASES = frozenset({"BaseModel", "BaseSettings", "NamedTuple", "TrainingArguments"})


def decorators(code: ast.AST) -> set[str]:
    """Return the last names of the decorators of a function or class."""
    found = set()
    for decorator in getattr(code, "decorator_list", ()):
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = getattr(func, "attr", None) or getattr(func, "id", None)
        if name:
            found.add(name)
    return found


def function(m: Machine, node: Definition, scope: Scope) -> int | None:
    """Execute a `def`."""
    scope.names[node.name] = function_of(node, scope, None)
    _decorate(m, node, scope)
    return None


def function_of(node: Definition, scope: Scope, owner: Class | None) -> Function:
    """Return the function that a definition makes."""
    made = Function(node, scope, owner=owner)
    if node.decorator_list:  # most have none
        made.wraps_no_grad = not NO_GRAD.isdisjoint(decorators(node))
    return made


def _decorate(m: Machine, node: Definition, scope: Scope) -> None:
    """Look at decorators that are an API of their own."""
    for decorator in node.decorator_list:
        name = scope.module.spelled(decorator)
        if "autocast" in name or "custom_" in name:
            called = unify(m.ev(decorator, scope))
            if isinstance(called, Ref) and isinstance(decorator, ast.Attribute | ast.Name):
                m.note("called", decorator, scope, api=called.path)


def class_(m: Machine, node: ast.ClassDef, scope: Scope) -> int | None:
    """Execute a `class`."""
    bases = [unify(m.ev(base, scope)) for base in node.bases]
    made = Class(node, scope, bases)
    made.settings = not _SETTINGS.isdisjoint(decorators(node)) or any(
        last(name) in _SETTINGS_BASES for name in made.outside()
    )
    scope.names[node.name] = made
    inner = Scope(scope.module, scope, node)
    inner.cls = made
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            if not part.decorator_list or "setter" not in decorators(part):
                made.members[part.name] = function_of(part, scope, made)
            _decorate(m, part, scope)
        elif isinstance(part, ast.Assign | ast.AnnAssign | ast.ClassDef):
            m.run([part], inner)
    made.members = {**inner.names, **made.members}
    return None
