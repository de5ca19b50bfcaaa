"""Functions of the project: their bodies are executed with the values that they are given."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from instep.check.execute import arguments, hooks, tensor_methods, tensors
from instep.check.execute.arguments import Call
from instep.check.execute.defining import decorators
from instep.check.execute.definitions import Class, Function, Instance, Super
from instep.check.execute.machine import RAISE
from instep.check.execute.program import Scope
from instep.check.execute.roles import NUMBERS
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Net
from instep.check.execute.values import Context, Gate, Unknown, unify

if TYPE_CHECKING:
    from collections.abc import Hashable

    from instep.check.execute.journal import Note
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module
    from instep.check.execute.scan import Definition
    from instep.check.execute.values import Value

MOST_DEPTH = 14
_MOST_RECURSION = 2
_TEST = "test_"


def bound_to(function: Function, value: Value) -> Function:
    """Return a function as the method of an object."""
    bound = Function(function.code, function.scope, bound=value, owner=function.owner)
    bound.wraps_no_grad = function.wraps_no_grad
    return bound


def bind(m: Machine, node: ast.AST, function: Function, value: Value, scope: Scope) -> Any:
    """Return a method of an object, or the value of its property."""
    marks = function.scope.module.read(_marks, function.code)
    receiver = value.of if isinstance(value, Super) else value
    if "staticmethod" in marks:
        return function
    if "classmethod" in marks:
        receiver = receiver.cls if isinstance(receiver, Instance | Net) else receiver
    elif isinstance(receiver, Class):
        return function
    bound = bound_to(function, receiver)
    if not marks.isdisjoint({"property", "cached_property"}) and not isinstance(value, Super):
        return invoke(m, bound, Call(node, scope))
    return bound


def _marks(code: ast.AST, _module: Module) -> set[str]:
    return decorators(code)


def invoke(m: Machine, function: Function, call: Call) -> Value:
    """Execute a function of the project and return what it returns."""
    code = function.code
    if isinstance(code, ast.Lambda):
        return _evaluate(m, function, code, call)
    stop = _stop(m, function, call)
    if stop is not None:
        return stop
    hot = function.scope.module.scan.hot(code)
    return _hot(m, function, call, code) if hot else _cold(m, function, call, code)


def _hot(m: Machine, function: Function, call: Call, code: Definition) -> Value:
    """Execute a function in which events can happen.

    A test that goes backward, and steps nothing that was there before, is gone through once:
    whatever it is given the next time, it begins anew, and what is found in a test is a note.
    """
    if code in m.tested:
        return None
    before = len(m.notes)
    signal, result, _ = _run(m, function, call, code)
    if signal == RAISE:
        return call.unknown(m)
    if result is None and code.name.startswith(_TEST) and _is_by_itself(m.notes[before:]):
        m.tested.add(code)
    return result


def _cold(m: Machine, function: Function, call: Call, code: Definition) -> Value:
    """Execute a function for what it returns; the same again if nothing else is given to it."""
    if call.node in m.memo:
        return m.memo[call.node]
    at = _call_of(function, call)
    if at in m.memo:
        return m.memo[at]
    before = len(m.notes)
    signal, result, inner = _run(m, function, call, code)
    if signal == RAISE:
        return call.unknown(m)
    if code.name in NUMBERS:
        whole = unify(result)
        result = tensor_methods.cut(m, call.node, whole) if isinstance(whole, Tensor) else result
    if all(_is_local(note, inner) for note in m.notes[before:]):
        del m.notes[before:]
    if len(m.notes) == before and _is_same_again(result, call):
        m.memo[at if _is_of_models(result) else call.node] = result
    return result


def _run(
    m: Machine, function: Function, call: Call, code: Definition
) -> tuple[int | None, Value, Scope]:
    """Execute the body of a function; return how it was left, what it returns, and its names."""
    inner = Scope(function.scope.module, function.scope, code)
    inner.cls = function.owner
    arguments.bind(m, function, inner, call.args, call.kwargs)
    m.depth += 1
    m.stack.append(code)
    m.no_grad += function.wraps_no_grad
    gates, m.gates = m.gates, list(m.gates)
    try:
        m.returned = None
        signal = m.run(code.body, inner)
        result, m.returned = m.returned, None
        m.covered.add(code)
    finally:
        m.gates = gates
        m.no_grad -= function.wraps_no_grad
        m.stack.pop()
        m.depth -= 1
    return signal, result, inner


def _is_by_itself(notes: list[Note]) -> bool:
    """Say whether something went backward, and every optimizer that was stepped was made first."""
    made = {note.data["thing"] for note in notes if note.kind == "made"}
    stepped = {note.data["optimizer"] for note in notes if note.kind == "step"}
    return stepped <= made and any(note.kind == "backward" for note in notes)


def _is_local(note: Note, scope: Scope) -> bool:
    """Say whether a note is of a sum that ends with the call it was made in."""
    return note.kind == "kept" and note.data.get("owner") is scope and "." not in note.data["name"]


def _is_of_models(result: Value) -> bool:
    given, nets, _ = tensors.made_of([result])
    return bool(given or nets)


def _call_of(function: Function, call: Call) -> Hashable:
    """Return what a call from the same place is the same by: whose tensors it is given."""
    given, nets, _ = tensors.made_of(call.inputs)
    graph = any(tensor.graph for tensor in given)
    return call.node, function.bound, graph, tensors.union(given, nets)


def _is_same_again(result: Value, call: Call) -> bool:
    """Say whether the next call from the same place would give the same: nothing counts in it."""
    if isinstance(result, Unknown) or (isinstance(result, Tensor) and result.parts == ()):
        return True
    values = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(value, Unknown | Tensor) for value in values):
        return False
    return not any(isinstance(value, int | float | Gate) for value in call.inputs)


def _evaluate(m: Machine, function: Function, code: ast.Lambda, call: Call) -> Value:
    inner = Scope(function.scope.module, function.scope, code)
    inner.cls = function.owner
    arguments.bind(m, function, inner, call.args, call.kwargs)
    m.depth += 1
    try:
        return m.ev(code.body, inner)
    finally:
        m.depth -= 1


def _stop(m: Machine, function: Function, call: Call) -> Value:
    """Return what stands for a call that is not followed; None if it is."""
    code = function.code
    scan = function.scope.module.scan
    if code in scan.generators:
        return _generator(m, function, call)
    if "singledispatch" in function.scope.module.read(_marks, code):
        call.note(m, "opaque", what=str(function.known_as), values=None)
        m.problem(f"`{function.known_as}` has several forms", call)
        return call.unknown(m)
    left = hooks.left_to_others(m, function, call)
    if left is not None:
        return left
    if m.depth >= MOST_DEPTH or m.stack.count(code) >= _MOST_RECURSION:
        if m.depth >= MOST_DEPTH and scan.hot(code):
            call.note(m, "opaque", what=str(function.known_as), values=call.inputs)
            m.problem("calls are nested too deeply", call)
        return tensors.derive(m, call.node, call.inputs, call.scope)
    return None


def _generator(m: Machine, function: Function, call: Call) -> Value:
    """Return what stands for a generator: it is not followed."""
    is_context = "contextmanager" in decorators(function.code)
    name = str(function.known_as)
    if function.scope.module.scan.hot(function.code):
        call.note(m, "opaque", what=name, values=None)
        what = "context manager" if is_context else "generator"
        m.problem(f"`{name}` is a {what} in which gradients change", call)
    return Context() if is_context else call.unknown(m, name)
