"""Arguments: those that a call gives, and the parameters that take them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from instep.check.execute.values import DictValue, ListValue, Unknown, unify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.check.execute.definitions import Function
    from instep.check.execute.journal import Note
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Module, Scope
    from instep.check.execute.values import Thing, Value

REST = "**"
"""The name of what a call gives by name without saying which."""


class Call:
    """A call: where it is written, the last part of what it calls, and its arguments."""

    __slots__ = ("args", "kwargs", "name", "node", "scope")

    def __init__(
        self,
        node: ast.AST,
        scope: Scope,
        name: str = "",
        args: list[Value] | None = None,
        kwargs: dict[str, Value] | None = None,
    ) -> None:
        self.node = node
        self.scope = scope
        self.name = name
        self.args: list[Value] = args if args is not None else []
        self.kwargs: dict[str, Value] = kwargs if kwargs is not None else {}

    @property
    def inputs(self) -> list[Value]:
        """All arguments, by position and by name."""
        return [*self.args, *self.kwargs.values()] if self.kwargs else self.args[:]

    @property
    def first(self) -> Value:
        """The first argument by position; None if there is none."""
        return self.args[0] if self.args else None

    def get(self, index: int, name: str, default: Value = None) -> Value:
        """Return an argument that is given by position or by name."""
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)

    def unknown(self, m: Machine, name: str = "", drawn: Thing | None = None) -> Unknown:
        """Return an unknown result."""
        return m.unknown(self.node, self.scope, name, drawn)

    def note(self, m: Machine, kind: str, **data: Any) -> Note:
        """Write down an event that the call causes."""
        return m.write(kind, self.node, self.scope.module, data)


def given(m: Machine, node: ast.Call, scope: Scope) -> tuple[list[Value], dict[str, Value]]:
    """Evaluate the arguments of a call."""
    args: list[Value] = []
    for arg in node.args:
        if type(arg) is not ast.Starred:
            args.append(m.ev(arg, scope))
            continue
        inner = unify(m.ev(arg.value, scope))
        if isinstance(inner, tuple):
            args.extend(inner)
        elif isinstance(inner, ListValue):
            args.extend(inner.items)
        else:
            args.append(inner)
    kwargs: dict[str, Value] = {}
    for keyword in node.keywords:
        value = m.ev(keyword.value, scope)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif isinstance(value, DictValue):
            kwargs.update({str(name): inner for name, inner in value.items.items()})
        else:
            kwargs[REST] = value
    return args, kwargs


def bind(
    m: Machine,
    function: Function,
    inner: Scope,
    args: Sequence[Value],
    kwargs: dict[str, Value],
) -> None:
    """Give the parameters of a function their values, in the scope of its body."""
    spec = function.code.args
    names, every, known, written = function.scope.module.read(_signature, function.code)
    values = inner.names
    if function.bound is not None:
        inner.self_value = function.bound
        args = [function.bound, *args]
    values.update(zip(names, args, strict=False))
    if spec.vararg is not None:
        values[spec.vararg.arg] = tuple(args[len(names) :])
    if kwargs:
        values.update({name: value for name, value in kwargs.items() if name in known})
    if spec.kwarg is not None:
        rest = {name: value for name, value in kwargs.items() if name not in known}
        values[spec.kwarg.arg] = DictValue(rest, exact=REST not in rest)
    is_open = spec.vararg is not None or spec.kwarg is not None
    if len(values) < len(every) or (is_open and not known <= values.keys()):
        defaults = written if REST not in kwargs else {}
        for name in [name for name in every if name not in values]:
            if name in defaults:
                values[name] = m.ev(defaults[name], function.scope)
            else:
                values[name] = Unknown(f"{id(function.code)}:{name}", name)
    # They came from outside, so they may outlive the iteration.
    inner.assigned = dict.fromkeys(values, -1)


def _signature(
    code: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, _module: Module
) -> tuple[list[str], list[str], set[str], dict[str, ast.expr]]:
    """Return the parameters that take arguments by position, all of them, in order and as a set,
    and their defaults.
    """
    spec = code.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
    every = [*names, *(arg.arg for arg in spec.kwonlyargs)]
    return names, every, set(every), _defaults(spec, names)


def _defaults(spec: ast.arguments, names: list[str]) -> dict[str, ast.expr]:
    found = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        if default is not None:
            found[arg.arg] = default
    return found
