"""Gradients touched by hand: `p.grad = None`, `p.grad.mul_(1 / n)`, `p.grad.norm()`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import numbers, tensors
from instep.check.execute.things import Grad, Net, Optimizer, Param
from instep.check.execute.values import Unknown
from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module, Scope
    from instep.check.execute.values import Thing, Value

MOVES = frozenset({"add_", "sub_", "copy_"})
_CHANGES = frozenset({"add_", "sub_", "copy_", "sign_", "normal_", "addcmul_", "nan_to_num_"})


def read(m: Machine, node: ast.AST, param: Param, scope: Scope) -> None:
    """Take note that user code looks at gradients."""
    frozen = param.nets is not None and all(net.frozen for net in param.nets)
    guarded = _is_guarded(scope) or node in scope.module.read(_shown, scope.module.tree)
    m.note("grad-read", node, scope, param=param, guarded=guarded, frozen=frozen)


def assign(m: Machine, target: ast.Attribute, param: Param, value: Value, scope: Scope) -> None:
    """Follow `p.grad = ...` and `p.requires_grad = ...`."""
    if target.attr == "grad":
        if value is None:
            m.note("zero", target, scope, param=_picked(m, target, param), set_to_none=True)
        elif not isinstance(value, Grad):
            m.note("grad-edited", target, scope, param=param, factor=None)
    elif target.attr == "requires_grad" and param.nets is not None:
        for net in param.nets:
            net.frozen = value is False and param.complete


def freeze(m: Machine, param: Param, call: Call) -> Param:
    """Follow `parameter.requires_grad_(...)` and `parameter.detach_()`; of some of a model's, the
    model is not frozen.
    """
    asked = call.name != "detach_" and call.get(0, "requires_grad", default=True)
    for net in param.nets or ():
        net.frozen = asked is False and _picked(m, call.node, param).complete
    return param


def trained_by_hand(value: Value) -> None:
    """Take note of parameters that stand alone and whose gradient the source asks for by itself:
    whoever does has no need of an optimizer for them.
    """
    for net in (*(value.nets or ()),) if isinstance(value, Param) else (value,):
        if isinstance(net, Net) and net.kind == "Parameter":
            net.trainable = None


def is_moved(m: Machine, value: Value) -> bool:
    """Say whether writing to a value in place moves parameters that stand alone; whoever does has
    no need of an optimizer for them.
    """
    nets = [*(value.nets or ())] if isinstance(value, Param) else [value]
    alone = [net for net in nets if isinstance(net, Net) and net.kind == "Parameter"]
    if not alone or not (m.no_grad or isinstance(value, Param)):
        return False
    for net in alone:
        net.trainable = None
    return True


def write(m: Machine, node: ast.AST, grad: Grad, scope: Scope) -> None:
    """Take note that other numbers take the place of a gradient's: `p.grad.data = ...`."""
    m.note("grad-edited", node, scope, param=grad.param, factor=None)


def touch(m: Machine, node: ast.AST, value: Thing, scope: Scope, *, writes: bool = False) -> None:
    """Take note that the gradient of something is changed: of what an optimizer was given, or of
    one out of a list that it was. Where a gradient is written, which is what copies of parameters
    get theirs by, that may be any optimizer of which it is not known what it holds.
    """
    drawn = getattr(value, "drawn", None)
    known = {tensors.leaf(value), tensors.leaf(drawn)} - {None}
    for made in [note.data["thing"] for note in m.notes if note.kind == "made"]:
        if not isinstance(made, Optimizer):
            continue
        if not made.given.isdisjoint(known) or (writes and made.nets is None):
            param = Param(None, complete=False, optimizer=made)
            m.note("grad-edited", node, scope, param=param, factor=None)


def changed(m: Machine, value: Unknown, call: Call) -> None:
    """Follow `w.grad.data.zero_()` where `w` is no model's."""
    part: Unknown | None = value
    while part is not None and part.whole is not None:
        if (part.known_as or "").endswith(".grad"):
            touch(m, call.node, part.whole, call.scope, writes=call.name in MOVES)
            return
        part = part.whole


def picking(node: ast.For) -> set[ast.AST]:
    """Return what a loop over parameters does to some of them only: those of some name or shape.

    A test whether there is a gradient leaves none out that has one.
    """
    names = {part.id for part in walk(node.target) if isinstance(part, ast.Name)}
    found: set[ast.AST] = set()
    for test in (part for part in walk(node) if isinstance(part, ast.If)):
        asked = list(walk(test.test))
        if any(isinstance(part, ast.Attribute) and "grad" in part.attr for part in asked):
            if any(isinstance(part, ast.Call) for part in asked):
                found.update(walk(test))  # those whose numbers came out so
            continue
        if any(isinstance(part, ast.Name) and part.id in names for part in asked):
            leaves = any(isinstance(part, ast.Continue) for part in test.body)
            found.update(walk(node if leaves else test))
    return found


def _picked(m: Machine, node: ast.AST, param: Param) -> Param:
    if node not in m.picking:
        return param
    return Param(param.nets, complete=False, optimizer=param.optimizer)


def method(m: Machine, grad: Grad, call: Call) -> Value:
    """Call a method of a gradient."""
    param, name = grad.param, call.name
    if name in {"zero_", "fill_"} or (name == "mul_" and call.first == 0):
        call.note(m, "zero", param=_picked(m, call.node, param), set_to_none=False)
    elif name in {"mul_", "div_", "multiply_", "divide_", "true_divide_"}:
        call.note(m, "grad-edited", param=param, factor=factor(call.args, name))
    elif name in {"clamp_", "clip_"}:
        call.note(m, "clip", param=param, by="value", limit=None)
    elif name in _CHANGES:
        call.note(m, "grad-edited", param=param, factor=None)
    elif name not in {"detach_", "detach", "requires_grad_"}:
        return call.unknown(m, f"{name}()")
    return grad


def factor(args: list[Value], name: str) -> Value:
    """Return what a gradient is multiplied by: a number, a (value, power), or None."""
    if not args:
        return None
    value = args[0]
    power = -1 if "div" in name.lower() else 1
    if isinstance(value, Unknown) and value.inverse is not None:
        return (value.inverse, -power)
    plain = numbers.number(value)
    if plain is not None and not isinstance(value, Unknown):
        return plain if power == 1 else (1 / plain if plain else None)
    return (value, power)


def _shown(tree: ast.Module, _module: Module) -> frozenset[ast.expr]:
    """Return what is printed as it is: `print(p.grad)` shows None as well as a gradient."""
    return frozenset(
        given
        for node in walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
        for given in node.args
    )


def _is_guarded(scope: Scope) -> bool:
    """Say whether the code around a read asks if there is a gradient."""
    code = scope.code if scope.code is not None else scope.module.tree
    known = scope.module.guards.get(code)
    if known is None:
        known = scope.module.guards[code] = any(_asks(node) for node in walk(code))
    return known


def _asks(node: ast.AST) -> bool:
    """Say whether a node compares a gradient with None, tests it, or is ready for it to fail."""
    tests: list[ast.expr] = []
    match node:
        case ast.ExceptHandler():
            return True
        case ast.Call():
            return getattr(node.func, "id", "") in {"hasattr", "getattr"}
        case ast.Compare():
            tests = [node] if any(_is_none(side) for side in node.comparators) else []
        case ast.comprehension():
            tests = node.ifs
        case ast.BoolOp():
            tests = node.values
        case ast.If() | ast.IfExp():
            tests = [node.test]
    return any(
        isinstance(part, ast.Attribute) and "grad" in part.attr
        for test in tests
        for part in walk(test)
    )


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
