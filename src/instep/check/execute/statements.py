"""Statements other than loops and branches."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import attributes, calls, grads, numbers, roles, tensors
from instep.check.execute.machine import EXECUTE, Machine
from instep.check.execute.program import Module, Scope
from instep.check.execute.values import (
    Class,
    Context,
    Function,
    Grad,
    ListValue,
    Net,
    Ref,
    Tensor,
    Tick,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_SETTINGS = re_settings = ("dataclass", "dataclasses", "define", "frozen", "attrs", "s")
_CHANGES = frozenset(
    {"append", "extend", "update", "add", "insert", "clear", "pop", "appendleft", "setdefault"}
)
_QUIET = frozenset({"print", "warn", "info", "debug", "warning", "write", "set_description",
                    "set_postfix", "log", "add_scalar", "add_image", "flush", "tqdm"})  # fmt: skip


def _expression(m: Machine, node: ast.Expr, scope: Scope) -> int | None:
    value = node.value
    if isinstance(value, ast.Call):
        func = value.func
        name = getattr(func, "attr", None) or getattr(func, "id", None)
        if name in _QUIET:
            names = scope.module.scan.names.get(id(node), frozenset())
            scan = scope.module.scan
            if names.isdisjoint(scan.defined) and not scan.hot(node):
                return None
    elif isinstance(value, ast.Constant):
        return None
    m.ev(value, scope)
    return None


def _assign(m: Machine, node: ast.Assign, scope: Scope) -> int | None:
    if isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        if len(node.targets) == 1 and _same(node.targets[0], node.value.left):
            return _grown(m, node, node.value, scope)
    value = m.ev(node.value, scope)
    for target in node.targets:
        attributes.assign(m, target, value, scope)
    return None


def _same(one: ast.expr, other: ast.expr) -> bool:
    if isinstance(one, ast.Name):
        return isinstance(other, ast.Name) and one.id == other.id
    return isinstance(one, ast.Attribute) and ast.unparse(one) == ast.unparse(other)


def _grown(m: Machine, node: ast.Assign, sum_: ast.BinOp, scope: Scope) -> int | None:
    """`total = total + loss` is `total += loss`."""
    target = node.targets[0]
    old, value = m.ev(sum_.left, scope), m.ev(sum_.right, scope)
    new = numbers.binary(m, sum_, sum_.op, old, value, scope)
    added = tensors.unify(value)
    if isinstance(added, Tensor) and added.graph:
        _keeps(m, node, target, old, added, new, scope)
    if isinstance(new, int) and not isinstance(new, bool):
        new = Tick(new)
    _rebind(m, target, new, scope)
    return None


def _annotated(m: Machine, node: ast.AnnAssign, scope: Scope) -> int | None:
    if node.value is not None:
        attributes.assign(m, node.target, m.ev(node.value, scope), scope)
    return None


def _augmented(m: Machine, node: ast.AugAssign, scope: Scope) -> int | None:
    target = node.target
    old = m.ev(target, scope)
    value = m.ev(node.value, scope)
    known = tensors.unify(old)
    if isinstance(known, Grad):
        changes = isinstance(node.op, ast.Mult | ast.Div)
        factor = grads.factor([value], type(node.op).__name__) if changes else None
        m.note("grad-edited", node, scope, param=known.param, factor=factor)
        return None
    new = numbers.binary(m, node, node.op, old, value, scope)
    added = tensors.unify(value)
    if isinstance(node.op, ast.Add) and isinstance(added, Tensor) and added.graph:
        _keeps(m, node, target, old, added, new, scope)
    if isinstance(new, int) and not isinstance(new, bool) and isinstance(node.op, ast.Add):
        new = Tick(new)
    if isinstance(known, ListValue) and isinstance(tensors.unify(value), ListValue):
        new = known
        new.items.extend(tensors.unify(value).items)
    _rebind(m, target, new, scope)
    return None


def _rebind(m: Machine, target: ast.expr, value: Value, scope: Scope) -> None:
    """Assign without saying that the name was made in this iteration: it carries what it had."""
    spelled = ast.unparse(target)
    owner = scope.elsewhere.get(spelled, scope)
    before = owner.assigned.get(spelled)
    attributes.assign(m, target, value, scope)
    if before is not None:
        owner.assigned[spelled] = before
    elif isinstance(target, ast.Name):
        owner.assigned[spelled] = -1
    else:
        owner.assigned.pop(spelled, None)


def _keeps(
    m: Machine,
    node: ast.AugAssign | ast.Assign,
    target: ast.expr,
    old: Value,
    added: Tensor,
    new: Value,
    scope: Scope,
) -> None:
    spelled = ast.unparse(target)
    owner = scope.elsewhere.get(spelled, scope)
    born = owner.assigned.get(spelled, -1)
    into = tensors.unify(new)
    m.note(
        "kept", node, scope, tensor=added, into=into, born=born, name=spelled, owner=id(owner),
        loops=tuple(m.loops),
    )  # fmt: skip


def _function(m: Machine, node: ast.FunctionDef, scope: Scope) -> int | None:
    scope.names[node.name] = function_of(node, scope, None)
    if node.decorator_list:
        _decorate(m, node, scope)
    return None


def function_of(
    node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, owner: Class | None
) -> Function:
    """Return the function that a definition makes."""
    made = Function(node, scope, owner=owner)
    marks = calls.decorators(node)
    made.wraps_no_grad = bool(marks & {"no_grad", "inference_mode"})
    return made


def _decorate(m: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
    """Look at decorators that are an API of their own."""
    for decorator in node.decorator_list:
        name = ast.unparse(decorator)
        if "autocast" in name or "custom_" in name:
            called = tensors.unify(m.ev(decorator, scope))
            if isinstance(called, Ref) and isinstance(decorator, ast.Attribute | ast.Name):
                m.note("called", decorator, scope, api=called.path)


def _class(m: Machine, node: ast.ClassDef, scope: Scope) -> int | None:
    bases = [tensors.unify(m.ev(base, scope)) for base in node.bases]
    made = Class(node, scope, bases)
    marks = calls.decorators(node)
    made.settings = bool(marks & set(_SETTINGS)) or any(
        roles.last(name) in {"BaseModel", "BaseSettings", "NamedTuple", "TrainingArguments"}
        for name in made.outside()
    )
    scope.names[node.name] = made
    inner = Scope(scope.module, scope, node)
    inner.cls = made
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = calls.decorators(part)
            if "setter" not in marks:
                made.members[part.name] = function_of(part, scope, made)
            if part.decorator_list:
                _decorate(m, part, scope)
        elif isinstance(part, ast.Assign | ast.AnnAssign | ast.ClassDef):
            m.run([part], inner)
    made.members.update(
        {name: value for name, value in inner.names.items() if name not in made.members}
    )
    return None


def _import(m: Machine, node: ast.Import, scope: Scope) -> int | None:
    for alias in node.names:
        found = m.project.find(scope.module, alias.name, 0)
        if found is not None and (alias.asname or "." not in alias.name):
            bound: Value = ModuleValue(found)
        else:
            bound = Ref(alias.name if alias.asname else alias.name.partition(".")[0])
        scope.names[alias.asname or alias.name.partition(".")[0]] = bound
        if isinstance(bound, ModuleValue):
            load(m, bound.module)
            scope.names[alias.asname or alias.name] = namespace(m, bound.module)
    return None


class ModuleValue:
    """A module of the project, while it is being imported."""

    def __init__(self, module: Module) -> None:
        self.module = module


def namespace(m: Machine, module: Module) -> Value:
    """Return a module of the project as a value whose attributes are its names."""
    made = Unknown(f"module:{id(module)}", module.unit.path)
    made.attrs = m.scope_of(module).names
    return made


def load(m: Machine, module: Module) -> Scope:
    """Execute a module that another one imports, once per path."""
    if id(module) in m.scopes:
        return m.scopes[id(module)]
    scope = m.scope_of(module)
    scope.names["__name__"] = "imported"
    if m.depth < 8:
        loops, m.loops = m.loops, []
        m.depth += 1
        try:
            m.run(module.tree.body, scope)
        finally:
            m.depth -= 1
            m.loops = loops
    return scope


def _import_from(m: Machine, node: ast.ImportFrom, scope: Scope) -> int | None:
    dotted = node.module or ""
    found = m.project.find(scope.module, dotted, node.level) if dotted or node.level else None
    for alias in node.names:
        name = alias.asname or alias.name
        if alias.name == "*":
            if found is not None:
                scope.names.update(
                    {k: v for k, v in load(m, found).names.items() if not k.startswith("__")}
                )
            continue
        scope.names[name] = _imported(m, node, found, dotted, alias.name, scope)
    return None


def _imported(
    m: Machine, node: ast.ImportFrom, found: Module | None, dotted: str, name: str, scope: Scope
) -> Value:
    if found is not None:
        names = load(m, found).names
        if name in names:
            return names[name]
    inner = m.project.find(scope.module, f"{dotted}.{name}".strip("."), node.level)
    if inner is not None:
        load(m, inner)
        return namespace(m, inner)
    return Ref(f"{dotted}.{name}" if dotted else name)


def _with(m: Machine, node: ast.With | ast.AsyncWith, scope: Scope) -> int | None:
    leaving: list[Callable[[], None]] = []
    for item in node.items:
        value = tensors.unify(m.ev(item.context_expr, scope))
        entered: Value = value
        if isinstance(value, Context):
            entered = value.enter() if value.enter is not None else None
            if value.leave is not None:
                leaving.append(value.leave)
        elif isinstance(value, Ref) and roles.last(value.path) in {"no_grad", "inference_mode"}:
            m.no_grad += 1
            leaving.append(lambda: _less(m))
        elif isinstance(value, Net | Function):
            entered = m.unknown(node, scope)
        if "dist_autograd" in _spelled(item.context_expr):
            m.managed = "dist_autograd"
            entered = Unknown(f"{id(node)}:context", "ctx")
        if item.optional_vars is not None:
            attributes.assign(m, item.optional_vars, entered, scope)
    signal = m.run(node.body, scope)
    for leave in reversed(leaving):
        leave()
    return signal


def _spelled(node: ast.AST) -> str:
    func = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(func) if isinstance(func, ast.Attribute) else ""


def _less(m: Machine) -> None:
    m.no_grad -= 1


def _global(m: Machine, node: ast.Global, scope: Scope) -> int | None:
    for name in node.names:
        scope.elsewhere[name] = scope.top()
    return None


def _nonlocal(m: Machine, node: ast.Nonlocal, scope: Scope) -> int | None:
    for name in node.names:
        outer = scope.outer
        while outer is not None and name not in outer.names:
            outer = outer.outer
        if outer is not None:
            scope.elsewhere[name] = outer
    return None


def _delete(m: Machine, node: ast.Delete, scope: Scope) -> int | None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            scope.names.pop(target.id, None)
    return None


EXECUTE.update(
    {
        ast.Expr: _expression,
        ast.Assign: _assign,
        ast.AnnAssign: _annotated,
        ast.AugAssign: _augmented,
        ast.FunctionDef: _function,
        ast.AsyncFunctionDef: _function,
        ast.ClassDef: _class,
        ast.Import: _import,
        ast.ImportFrom: _import_from,
        ast.With: _with,
        ast.AsyncWith: _with,
        ast.Global: _global,
        ast.Nonlocal: _nonlocal,
        ast.Delete: _delete,
    }
)
