"""Methods of lists and dicts, and losses that are kept in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import tensors
from instep.check.execute.values import DictValue, Iterator, ListValue, Tensor, Value

if TYPE_CHECKING:
    import ast

    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope

_MOST = 64


def method(
    m: Machine,
    node: ast.Call,
    value: ListValue | DictValue | Iterator,
    name: str,
    args: list[Value],
    scope: Scope,
) -> Value:
    """Call a method of a list, a dict or an iterator."""
    if isinstance(value, ListValue):
        return _list(m, node, value, name, args, scope)
    if isinstance(value, DictValue):
        return _dict(m, node, value, name, args, scope)
    return value if name in {"__iter__"} else m.unknown(node, scope)


def _list(
    m: Machine, node: ast.Call, value: ListValue, name: str, args: list[Value], scope: Scope
) -> Value:
    if name in {"append", "add", "insert", "appendleft"} and args:
        new = args[-1]
        tensor = tensors.unify(new)
        if isinstance(tensor, Tensor):
            m.note(
                "kept", node, scope, tensor=tensor, into=value, born=value.born,
                loops=tuple(m.loops),
            )  # fmt: skip
        if len(value.items) < _MOST:
            value.items.append(new)
        return None
    if name == "extend" and args:
        more = tensors.unify(args[0])
        if isinstance(more, ListValue | tuple):
            items = more.items if isinstance(more, ListValue) else list(more)
            value.items.extend(items[:_MOST])
            value.exact = value.exact and getattr(more, "exact", True)
        else:
            value.items.append(args[0])
            value.exact = False
        return None
    if name == "clear":
        value.items.clear()
        value.born = m.serial
        return None
    if name == "pop":
        return value.items.pop() if value.items else m.unknown(node, scope)
    return m.unknown(node, scope)


def _dict(
    m: Machine, node: ast.Call, value: DictValue, name: str, args: list[Value], scope: Scope
) -> Value:
    if name == "values":
        return ListValue(list(value.items.values()), exact=value.exact)
    if name == "keys":
        return ListValue(list(value.items), exact=value.exact)
    if name == "items":
        return ListValue([tuple(pair) for pair in value.items.items()], exact=value.exact)
    if name in {"get", "pop", "setdefault"} and args and isinstance(args[0], str | int):
        if args[0] in value.items:
            return value.items[args[0]]
        if value.exact and name == "get":
            return args[1] if len(args) > 1 else None
        return m.unknown(node, scope, str(args[0]))
    if name == "update" and args and isinstance(args[0], DictValue):
        value.items.update(args[0].items)
        return None
    return m.unknown(node, scope)
