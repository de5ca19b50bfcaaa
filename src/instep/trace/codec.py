"""Events as plain dicts that JSON can carry, and back, exactly. Nothing is ever executed."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

from instep.trace.events import KINDS, Event
from instep.trace.place import Place

_Data = TypeVar("_Data", Event, Place)

_CODED: tuple[type[Event] | type[Place], ...] = (Place, *KINDS.values())
_FIELDS: dict[type, dict[str, Field[Any]]] = {
    cls: {member.name: member for member in fields(cls)} for cls in _CODED
}

# JSON has no word for these, and a browser refuses Python's.
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class TraceFormatError(ValueError):
    """What was read is not a trace that this version can read."""


def encode(event: Event) -> dict[str, Any]:
    """Return the event as a dict of JSON's own types, with its kind under "kind".

    >>> from instep.trace.events import Drawn
    >>> encode(Drawn("loader", items=8))
    {'kind': 'drawn', 'loader': 'loader', 'items': 8}
    """
    return {"kind": event.kind, **_members(event)}


def decode(data: object) -> Event:
    """Return the event that `encode` made this dict of, or raise TraceFormatError."""
    if not isinstance(data, dict):
        raise refusal(f"an event is a dict, not {type(data).__name__}")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise refusal(f"there is no event of kind {kind!r}")
    return _build(KINDS[kind], {name: data[name] for name in data if name != "kind"})


def encode_value(value: object) -> Any:
    """Return one value of a field as JSON's own types."""
    if isinstance(value, Place):
        return _members(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    if isinstance(value, tuple):
        return [encode_value(part) for part in value]
    if isinstance(value, Mapping):
        # As pairs, so that no name of a fact can be taken for the marks used here.
        return {"facts": [[name, encode_value(fact)] for name, fact in value.items()]}
    return value


def decode_value(value: object) -> Any:
    """Return the value that `encode_value` made this of."""
    if isinstance(value, list):
        return tuple(decode_value(part) for part in value)
    if not isinstance(value, dict):
        return value
    match value:
        case {"float": str(name)} if len(value) == 1 and name in _NONFINITE:
            return _NONFINITE[name]
        case {"facts": list(pairs)} if len(value) == 1:
            return {_name(pair): decode_value(pair[1]) for pair in pairs}
    return _build(Place, value)


def _name(pair: object) -> str:
    match pair:
        case [str(name), _]:
            return name
    raise refusal(f"a fact is a name and a value, not {pair!r}")


def _members(data: Event | Place) -> dict[str, Any]:
    pairs = ((member, getattr(data, member.name)) for member in _FIELDS[type(data)].values())
    return {
        member.name: encode_value(value)
        for member, value in pairs
        if not (value is None and member.default is None)
    }


def _build(cls: type[_Data], data: dict[Any, Any]) -> _Data:
    known = _FIELDS[cls]
    values = {}
    for name, raw in data.items():
        if name not in known:
            raise refusal(f"{cls.__name__} has no field {name!r}")
        value = values[name] = decode_value(raw)
        if not _fits(value, known[name].type):
            raise refusal(f"{cls.__name__}.{name} cannot be {raw!r}")
    for name, member in known.items():
        if name not in values and member.default is member.default_factory is MISSING:
            raise refusal(f"{cls.__name__} needs its field {name!r}")
    return cls(**values)


def _fits(value: object, hint: Any) -> bool:
    """Whether a decoded value is of the type that a field is annotated with."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return any(_fits(value, arg) for arg in args)
    if origin is Literal:
        return isinstance(value, str) and value in args
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(part, args[0]) for part in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(map(is_fact, value.values()))
    if hint in {int, float}:
        return is_number(value, hint)
    return isinstance(value, type(None) if hint is None else hint)


def is_number(value: object, wanted: type[int] | type[float]) -> TypeGuard[int]:
    """Whether it is a number; True is one to Python, but not to a reader of numbers."""
    return isinstance(value, int | wanted) and not isinstance(value, bool)


def is_fact(value: object) -> bool:
    """Whether it is a scalar, or a tuple of such."""
    if isinstance(value, tuple):
        return all(map(is_fact, value))
    return value is None or isinstance(value, bool | int | float | str)


def refusal(what: str) -> TraceFormatError:
    """Make the error to raise about data that is no trace."""
    return TraceFormatError(
        f"not a trace: {what}.\n"
        "  why:  the data was not written by Trace.to_json, or was changed since.\n"
        "  fix:  record the trace again and write what Trace.to_json returns."
    )
