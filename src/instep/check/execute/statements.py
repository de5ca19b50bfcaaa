"""Statements other than loops, branches, definitions and imports."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import assignment, grads, numbers
from instep.check.execute.contexts import no_grad
from instep.check.execute.definitions import Function
from instep.check.execute.roles import NO_GRAD, last
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Grad, Net
from instep.check.execute.ticks import Tick
from instep.check.execute.values import ARRAY, Context, ListValue, Ref, Unknown, unify
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module, Scope
    from instep.check.execute.values import Value

_QUIET = frozenset(
    {"print", "warn", "info", "debug", "warning", "write", "set_description", "set_postfix", "log",
     "add_scalar", "add_image", "flush", "tqdm"}
)  # fmt: skip
"""Calls that only show something."""


def nothing(_m: Machine, _node: ast.stmt, _scope: Scope) -> int | None:
    """Execute what changes nothing: a `pass`, an `assert`."""
    return None


def expression(m: Machine, node: ast.Expr, scope: Scope) -> int | None:
    """Execute an expression that stands alone."""
    value = node.value
    kind = type(value)
    if kind is ast.Constant:
        return None
    if kind is ast.Call and scope.module.read(_is_quiet, node):
        scan = scope.module.scan
        if scan.defined.isdisjoint(scan.names(node)) and not scan.hot(node):
            return None
    m.ev(value, scope)
    return None


def _is_quiet(node: ast.Expr, _module: Module) -> bool:
    func = getattr(node.value, "func", None)
    return (getattr(func, "attr", None) or getattr(func, "id", None)) in _QUIET


def assign(m: Machine, node: ast.Assign, scope: Scope) -> int | None:
    """Execute `a = b`."""
    value = node.value
    if isinstance(value, ast.BinOp):
        if len(node.targets) == 1 and _grows(node, value, scope):
            return _grown(m, node, value, scope)
        result = m.ev(value, scope)
        if isinstance(node.targets[0], ast.Name):
            _average(m, node, node.targets[0], value, result, scope=scope)
    else:
        result = m.ev(value, scope)
    for target in node.targets:
        assignment.assign(m, target, result, scope)
    return None


def _average(
    m: Machine, node: ast.Assign, target: ast.Name, value: ast.BinOp, new: Value, *, scope: Scope
) -> None:
    """Take note of `average = 0.9 * average + 0.1 * loss`: it holds every loss there was."""
    if not isinstance(unify(new), Tensor) or target.id not in scope.names:
        return
    names = scope.module.read(_names, value)
    if target.id in names:
        for name in sorted(names - {target.id}):
            added = unify(m.lookup(name, scope))
            if isinstance(added, Tensor) and added.graph:
                _keep(m, node, target, added, new, scope=scope)


def _names(node: ast.AST, _module: Module) -> set[str]:
    return {part.id for part in walk(node) if isinstance(part, ast.Name)}


def _grows(node: ast.Assign, value: ast.BinOp, scope: Scope) -> bool:
    """Say whether an assignment adds something to its own target."""
    one, other = node.targets[0], value.left
    if type(one) is not type(other) or not isinstance(one, ast.Name | ast.Attribute):
        return False
    spelled = scope.module.spelled
    return isinstance(value.op, ast.Add) and spelled(one) == spelled(other)


def _grown(m: Machine, node: ast.Assign, added: ast.BinOp, scope: Scope) -> int | None:
    """Execute `total = total + loss` as `total += loss`."""
    old, value = m.ev(added.left, scope), m.ev(added.right, scope)
    new = numbers.binary(m, added, added.op, old, value, scope=scope)
    _accumulate(m, node, node.targets[0], value, new, scope=scope)
    return None


def annotated(m: Machine, node: ast.AnnAssign, scope: Scope) -> int | None:
    """Execute `a: int = b`."""
    if node.value is not None:
        assignment.assign(m, node.target, m.ev(node.value, scope), scope)
    return None


def augmented(m: Machine, node: ast.AugAssign, scope: Scope) -> int | None:
    """Execute `a += b`."""
    target = node.target
    old = m.ev(target, scope)
    value = m.ev(node.value, scope)
    known, added = unify(old), unify(value)
    if isinstance(known, Grad):
        changes = isinstance(node.op, ast.Mult | ast.Div)
        factor = grads.factor([value], type(node.op).__name__) if changes else None
        if factor == 0:
            m.note("zero", node, scope, param=known.param, set_to_none=False)
        else:
            m.note("grad-edited", node, scope, param=known.param, factor=factor)
        return None
    if grads.is_moved(m, known):
        return None
    new = numbers.binary(m, node, node.op, old, value, scope=scope)
    if isinstance(known, ListValue) and isinstance(added, ListValue):
        known.items.extend(added.items)
        new = known
    if isinstance(node.op, ast.Add):
        _accumulate(m, node, target, value, new, scope=scope)
    else:
        _rebind(m, target, new, scope)
    return None


def _accumulate(
    m: Machine, node: ast.stmt, target: ast.expr, value: Value, new: Value, *, scope: Scope
) -> None:
    """Bind what something was added to: a loss is kept, a number counts."""
    added = unify(value)
    if isinstance(added, Tensor) and added.graph:
        _keep(m, node, target, added, new, scope=scope)
        total = unify(new)
        if node in m.itemwise and isinstance(total, Tensor):
            total.itemwise = True
    if isinstance(new, int) and not isinstance(new, bool):
        new = Tick(new)
    _rebind(m, target, new, scope)


def _keep(
    m: Machine, node: ast.stmt, target: ast.expr, added: Tensor, new: Value, *, scope: Scope
) -> None:
    """Take note of a loss that becomes a part of something older, together with its graph."""
    total = unify(new)
    if (isinstance(total, Tensor) and not total.graph) or _is_number(m, target, scope):
        return
    spelled = scope.module.spelled(target)
    owner = _owner(target, spelled, scope)
    m.note(
        "kept", node, scope, tensor=added, into=total, name=spelled, owner=owner,
        born=max(owner.assigned.get(name, -1) for name in (spelled, _whole(target, scope))),
        loops=tuple(m.loops),
    )  # fmt: skip


def _whole(target: ast.expr, scope: Scope) -> str:
    """Return what a target is an element of: what is in it lasts no longer than that."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return scope.module.spelled(target)


def _is_number(m: Machine, target: ast.expr, scope: Scope) -> bool:
    """Say whether a target is an element of an array, which holds no graph."""
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
        return False
    whole = m.lookup(target.value.id, scope)
    return isinstance(whole, Unknown) and ARRAY in whole.attrs


def _owner(target: ast.expr, spelled: str, scope: Scope) -> Scope:
    """Return the scope that knows when a target was assigned."""
    if isinstance(target, ast.Attribute):
        return scope.top()
    return scope.elsewhere.get(spelled, scope)


def _rebind(m: Machine, target: ast.expr, value: Value, scope: Scope) -> None:
    """Assign without saying that the name was made in this iteration: it carries what it had."""
    spelled = scope.module.spelled(target)
    owner = _owner(target, spelled, scope)
    before = owner.assigned.get(spelled)
    assignment.assign(m, target, value, scope)
    if before is not None:
        owner.assigned[spelled] = before
    elif isinstance(target, ast.Name):
        owner.assigned[spelled] = -1
    else:
        owner.assigned.pop(spelled, None)


def with_(m: Machine, node: ast.With | ast.AsyncWith, scope: Scope) -> int | None:
    """Execute a `with`."""
    leaving: list[Callable[[], None]] = []
    for item in node.items:
        value = unify(m.ev(item.context_expr, scope))
        if isinstance(value, Ref) and last(value.path) in NO_GRAD:
            value = no_grad(m)  # written without the call
        entered: Value = value
        if isinstance(value, Context):
            entered = value.enter() if value.enter is not None else None
            if value.leave is not None:
                leaving.append(value.leave)
        elif isinstance(value, Net | Function):
            entered = m.unknown(node, scope)
        if _is_distributed(item.context_expr, scope):
            m.managed = "dist_autograd"
            entered = Unknown(f"{id(node)}:context", "ctx")
        if item.optional_vars is not None:
            assignment.assign(m, item.optional_vars, entered, scope)
    signal = m.run(node.body, scope)
    for leave in reversed(leaving):
        leave()
    return signal


def _is_distributed(node: ast.expr, scope: Scope) -> bool:
    func = node.func if isinstance(node, ast.Call) else node
    return isinstance(func, ast.Attribute) and "dist_autograd" in scope.module.spelled(func)


def global_(_m: Machine, node: ast.Global, scope: Scope) -> int | None:
    """Execute a `global`."""
    for name in node.names:
        scope.elsewhere[name] = scope.top()
    return None


def nonlocal_(_m: Machine, node: ast.Nonlocal, scope: Scope) -> int | None:
    """Execute a `nonlocal`."""
    for name in node.names:
        outer = scope.outer
        while outer is not None and name not in outer.names:
            outer = outer.outer
        if outer is not None:
            scope.elsewhere[name] = outer
    return None


def delete(m: Machine, node: ast.Delete, scope: Scope) -> int | None:
    """Execute a `del`; of a gradient it is a clear."""
    for target in node.targets:
        if isinstance(target, ast.Name):
            scope.names.pop(target.id, None)
        elif isinstance(target, ast.Attribute) and target.attr == "grad":
            assignment.assign(m, target, None, scope)
    return None
