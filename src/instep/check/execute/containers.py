"""Methods of lists and dicts, and losses that are kept in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute.arguments import REST
from instep.check.execute.lengths import MOST_EVERY
from instep.check.execute.tensors import Tensor
from instep.check.execute.values import DictValue, Iterator, ListValue, Unknown, unify

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Value

_MOST = 64
"""Elements that are kept."""


def of_iterator(m: Machine, value: Iterator, call: Call) -> Value:
    """Call a method of an iterator."""
    return value if call.name == "__iter__" else call.unknown(m)


def of_list(m: Machine, value: ListValue, call: Call) -> Value:
    """Call a method of a list or set."""
    name = call.name
    if name == "pop":
        return value.items.pop() if value.items else call.unknown(m)
    if name in {"append", "add", "insert", "appendleft"} and call.args:
        _append(m, value, call)
    elif name == "extend" and call.args:
        _extend(value, call.args[0])
    elif name == "clear":
        value.items.clear()
        value.born = m.serial
        value.emptied.update(m.loops)
    else:
        return call.unknown(m)
    return None


def _append(m: Machine, value: ListValue, call: Call) -> None:
    new = call.args[-1]
    tensor = unify(new)
    if isinstance(tensor, Tensor):
        call.note(m, "kept", tensor=tensor, into=value, born=value.born, loops=tuple(m.loops))
    if len(value.items) < _MOST:
        value.items.append(new)


def _extend(value: ListValue, given: Value) -> None:
    more = unify(given)
    if isinstance(more, ListValue):
        value.items.extend(more.items[:_MOST])
        value.exact = value.exact and more.exact
    elif isinstance(more, tuple):
        value.items.extend(more[:_MOST])
    else:
        value.items.append(given)
        value.exact = False


def put_somewhere(value: ListValue, new: Value) -> None:
    """Put a tensor in the place of an element that is not known: any of them may be left.

    What a loop puts there from the same models takes the place of what it put there before.
    """
    nets = unify(new).nets
    last = unify(value.items[-1]) if value.items else None
    if not value.exact and isinstance(last, Tensor) and last.nets == nets:
        value.items[-1] = new
    elif len(value.items) < _MOST:
        value.items.append(new)
    value.exact = False


def default(key: str, name: str, value: Value) -> Unknown:
    """Return a setting of which the source gives the default."""
    made = Unknown(key, name)
    if type(value) is int and 1 <= value <= MOST_EVERY:
        made.usual = value
    return made


def reset(value: DictValue) -> None:
    """Take note that somebody may set any entry of a dict: its numbers are but defaults."""
    value.exact = False
    for at, inner in value.items.items():
        if type(inner) in {int, float}:
            value.items[at] = default(f"{id(value)}[{at!r}]", str(at), inner)


def merge(value: DictValue, given: Value) -> None:
    """Add the entries of a mapping to a dict; of one that is not known, those may be any."""
    given = unify(given)
    known = given.items if isinstance(given, DictValue) else {}
    if not isinstance(given, DictValue) or not given.exact:
        reset(value)
    value.items.update((at, inner) for at, inner in known.items() if at != REST)


def of_dict(m: Machine, value: DictValue, call: Call) -> Value:
    """Call a method of a dict."""
    name, first = call.name, call.first
    if name == "values":
        return ListValue(list(value.items.values()), exact=value.exact)
    if name in {"keys", "items"}:
        keyed = value.items if name == "keys" else value.items.items()
        return ListValue(list(keyed), exact=value.exact)
    if name in {"get", "pop", "setdefault"} and isinstance(first, str | int):
        return _entry(m, value, call)
    if name == "update":
        for given in call.args:
            merge(value, given)
        merge(value, DictValue(dict(call.kwargs), exact=REST not in call.kwargs))
        return None
    return call.unknown(m)


def _entry(m: Machine, value: DictValue, call: Call) -> Value:
    key = call.args[0]
    if key in value.items:
        return value.items[key]
    if value.exact and call.name == "get":
        return call.args[1] if len(call.args) > 1 else None
    return call.unknown(m, str(key))
