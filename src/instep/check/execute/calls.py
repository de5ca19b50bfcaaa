"""Calls: functions and classes of the project are executed, all others have a meaning or none."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import api, attributes, roles, tensors, things
from instep.check.execute.machine import EVALUATE, MOST_DEPTH, RAISE, Machine
from instep.check.execute.program import Scope
from instep.check.execute.values import (
    Class,
    Context,
    DictValue,
    Function,
    Instance,
    ListValue,
    Method,
    Native,
    Net,
    Optimizer,
    Parameters,
    Ref,
    Super,
    Tensor,
    Thing,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_NO_GRAD = ("no_grad", "inference_mode")


def _call(m: Machine, node: ast.Call, scope: Scope) -> Value:
    func = node.func
    receiver: Value = None
    if isinstance(func, ast.Attribute):
        receiver = m.ev(func.value, scope)
        callee = callee_of(m, func, receiver, scope)
    else:
        callee = m.ev(func, scope)
    args, kwargs = arguments(m, node, scope)
    return call(m, node, callee, args, kwargs, scope)


def callee_of(m: Machine, func: ast.Attribute, receiver: Value, scope: Scope) -> Value:
    """Return what `receiver.name(...)` calls."""
    known = tensors.unify(receiver)
    if isinstance(known, Ref):
        return Ref(f"{known.path}.{func.attr}")
    if isinstance(known, Instance | Super | Class):
        return attributes.get(m, func, known, func.attr, scope)
    if isinstance(known, Net):
        if func.attr in known.attrs or attributes.find_member(known, func.attr) is not None:
            if func.attr not in things.NET_METHODS or known.cls is None:
                return attributes.member(m, func, known, func.attr, scope)
            found = attributes.find_member(known, func.attr)
            if isinstance(found, Function) and scope.module.scan.hot(found.code):
                return attributes.member(m, func, known, func.attr, scope)
        return Method(known, func.attr)
    if isinstance(known, Unknown) and func.attr in known.attrs:
        stored = known.attrs[func.attr]
        if not isinstance(stored, Unknown):
            return stored
    return Method(receiver, func.attr)


def arguments(
    m: Machine, node: ast.Call, scope: Scope
) -> tuple[list[Value], dict[str, Value]]:
    """Evaluate the arguments of a call."""
    args: list[Value] = []
    for arg in node.args:
        if isinstance(arg, ast.Starred):
            inner = tensors.unify(m.ev(arg.value, scope))
            if isinstance(inner, tuple):
                args.extend(inner)
            elif isinstance(inner, ListValue):
                args.extend(inner.items)
            else:
                args.append(inner)
        else:
            args.append(m.ev(arg, scope))
    kwargs: dict[str, Value] = {}
    for keyword in node.keywords:
        value = m.ev(keyword.value, scope)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif isinstance(value, DictValue):
            kwargs.update({str(name): inner for name, inner in value.items.items()})
        else:
            kwargs["**"] = value
    return args, kwargs


def call(
    m: Machine,
    node: ast.Call,
    callee: Value,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Call a value."""
    if isinstance(callee, Unknown) and callee.made is not None:
        callee = callee.made
    match callee:
        case Function():
            return invoke(m, node, callee, args, kwargs, scope)
        case Class():
            return construct(m, node, callee, args, kwargs, scope)
        case Ref():
            return api.call(m, node, callee.path, args, kwargs, scope)
        case Native():
            return callee.call(m, node, args, kwargs, scope)
        case Method():
            return things.method(m, node, callee.receiver, callee.name, args, kwargs, scope)
        case Instance():
            own = attributes.find_member(callee, "__call__")
            if isinstance(own, Function):
                bound = bind(m, node, own, callee, scope)
                return invoke(m, node, bound, args, kwargs, scope)
            return api.unknown_call(m, node, str(callee.known_as), args, kwargs, scope)
        case Unknown():
            return things.call_unknown(m, node, callee, args, kwargs, scope)
        case Thing():
            return things.call(m, node, callee, args, kwargs, scope)
    return api.unknown_call(m, node, "", args, kwargs, scope)


def decorators(code: ast.AST) -> set[str]:
    """Return the last names of the decorators of a function or class."""
    found = set()
    for decorator in getattr(code, "decorator_list", []):
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = getattr(func, "attr", None) or getattr(func, "id", None)
        if name:
            found.add(name)
    return found


def bind(m: Machine, node: ast.AST, function: Function, value: Value, scope: Scope) -> Value:
    """Return a method of an object, or the value of its property."""
    marks = decorators(function.code)
    receiver = value.of if isinstance(value, Super) else value
    if "staticmethod" in marks:
        return function
    if "classmethod" in marks:
        receiver = receiver.cls if isinstance(receiver, Instance | Net) else receiver
    elif isinstance(receiver, Class):
        return function
    bound = Function(function.code, function.scope, bound=receiver, owner=function.owner)
    bound.wraps_no_grad = function.wraps_no_grad
    if marks & {"property", "cached_property"} and not isinstance(value, Super):
        return invoke(m, node, bound, [], {}, scope)
    return bound


def invoke(
    m: Machine,
    node: ast.AST,
    function: Function,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Execute a function of the project and return what it returns."""
    code = function.code
    module = function.scope.module
    if not isinstance(code, ast.Lambda):
        stop = _stop(m, node, function, args, kwargs, scope)
        if stop is not None:
            return stop
    cold = not isinstance(code, ast.Lambda) and not module.scan.hot(code)
    if cold and id(node) in m.memo:
        return m.memo[id(node)]
    inner = Scope(module, function.scope, code)
    inner.cls = function.owner
    bind_arguments(m, function, inner, args, kwargs)
    before = len(m.notes)
    m.depth += 1
    m.stack.append(code)
    m.no_grad += function.wraps_no_grad
    gates, m.gates = m.gates, list(m.gates)
    try:
        if isinstance(code, ast.Lambda):
            return m.ev(code.body, inner)
        m.reached.add(id(code))
        m.returned = None
        signal = m.run(code.body, inner)
        result, m.returned = m.returned, None
        m.covered.add(id(code))
    finally:
        m.gates = gates
        m.no_grad -= function.wraps_no_grad
        m.stack.pop()
        m.depth -= 1
    if signal == RAISE:
        return m.unknown(node, scope)
    plain = isinstance(result, Unknown) or (isinstance(result, Tensor) and result.parts == ())
    if cold and plain and len(m.notes) == before:
        m.memo[id(node)] = result
    return result


def _stop(
    m: Machine,
    node: ast.AST,
    function: Function,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Return what stands for a call that is not followed; None if it is."""
    code = function.code
    module = function.scope.module
    hot = module.scan.hot(code)
    name = str(function.known_as)
    if id(code) in module.scan.generators:
        if "contextmanager" in decorators(code):
            if hot:
                m.note("opaque", node, scope, what=name, values=None)
                m.problem(f"`{name}` is a context manager in which gradients change", node)
            return Context()
        if hot:
            m.note("opaque", node, scope, what=name, values=None)
            m.problem(f"`{name}` is a generator in which gradients change", node)
        return m.unknown(node, scope, name)
    if m.depth >= MOST_DEPTH or m.stack.count(code) >= 2:
        if hot and m.depth >= MOST_DEPTH:
            m.note("opaque", node, scope, what=name, values=[*args, *kwargs.values()])
            m.problem("calls are nested too deeply", node)
        return tensors.derive(m, node, [*args, *kwargs.values()], scope)
    return None


def bind_arguments(
    m: Machine, function: Function, inner: Scope, args: list[Value], kwargs: dict[str, Value]
) -> None:
    """Give the parameters of a function their values."""
    spec = function.code.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
    given = [function.bound, *args] if function.bound is not None else list(args)
    if function.bound is not None:
        inner.self_value = function.bound
    values = dict(zip(names, given, strict=False))
    if spec.vararg is not None:
        values[spec.vararg.arg] = tuple(given[len(names) :])
    rest = {}
    known = {*names, *(arg.arg for arg in spec.kwonlyargs)}
    for name, value in kwargs.items():
        if name in known:
            values[name] = value
        else:
            rest[name] = value
    if spec.kwarg is not None:
        values[spec.kwarg.arg] = DictValue(dict(rest), exact="**" not in rest)
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        if default is not None:
            defaults[arg.arg] = default
    for name in (*names, *(arg.arg for arg in spec.kwonlyargs)):
        if name not in values:
            if name in defaults and "**" not in kwargs:
                values[name] = m.ev(defaults[name], function.scope)
            else:
                values[name] = Unknown(f"{id(function.code)}:{name}", name)
    for name, value in values.items():
        inner.names[name] = value
        inner.assigned[name] = -1  # it came from outside, so it may outlive the iteration


def construct(
    m: Machine,
    node: ast.AST,
    cls: Class,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Make an object of a class of the project."""
    made = blank(m, node, cls, args, kwargs)
    if isinstance(made, Optimizer):
        made.node, made.module = node, scope.module
        m.note("made", node, scope, thing=made)
        return made
    initial = attributes.find_member(made, "__init__")
    skip = isinstance(made, Net) and not _trains(cls)
    if isinstance(initial, Function) and not skip:
        bound = Function(initial.code, initial.scope, bound=made, owner=initial.owner)
        invoke(m, node, bound, args, kwargs, scope)
    elif cls.settings:
        _fill(cls, made, args, kwargs)
    return made


def _fill(cls: Class, made: Thing, args: list[Value], kwargs: dict[str, Value]) -> None:
    fields = [
        part.target.id
        for part in cls.code.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    ]
    made.attrs.update(zip(fields, args, strict=False))
    made.attrs.update(kwargs)


def _trains(cls: Class) -> bool:
    """Say whether events happen in a class, so that its attributes matter."""
    return any(base.scope.module.scan.hot(base.code) for base in cls.mro()) or any(
        "Lightning" in name for name in cls.outside()
    )


def blank(
    m: Machine, node: ast.AST, cls: Class, args: Iterable[Value], kwargs: dict[str, Value]
) -> Thing:
    """Return a new object of a class, before its `__init__`."""
    outside = cls.outside()
    if any(roles.is_module_base(name) for name in outside):
        net = Net(None, str(cls.known_as))
        net.cls, net.written, net.training = cls, True, True
        net.batchnorm = roles.has_batchnorm(cls)
        net.trainable = roles.has_parameters(cls)
        return net
    if any(roles.OPTIMIZER_CLASS.search(name.rpartition(".")[2]) for name in outside):
        held = next((tensors.parameters_of(arg) for arg in (*args, *kwargs.values())), None)
        return Optimizer(None, held, str(cls.known_as))
    return Instance(cls)


def _super(m: Machine, node: ast.Call, args: list[Value], kwargs: object, scope: Scope) -> Value:
    current: Scope | None = scope
    while current is not None and current.cls is None:
        current = current.outer
    if current is None or current.cls is None:
        return m.unknown(node, scope)
    holder: Scope | None = scope
    while holder is not None and holder.self_value is None:
        holder = holder.outer
    return Super(holder.self_value if holder is not None else current.cls, current.cls)


api.NATIVE["super"] = _super
EVALUATE[ast.Call] = _call
__all__ = ["Parameters", "arguments", "bind", "blank", "call", "construct", "invoke"]
