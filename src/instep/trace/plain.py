"""Dataclasses that cost little to define.

`dataclasses` writes up to six methods of every class as text and compiles them, and loads `inspect`
to do so: a third of the time that `instep check` took for a small file. Here methods are closures
over the names of the fields. An `__init__` that is written for the class is faster than such a one,
so a class gets one as soon as it has many instances.

What it makes behaves as a dataclass: `dataclasses.fields` and `replace` take it, and to a checker
of types it is one.
"""

from __future__ import annotations

from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["dataclass", "field", "replace"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass, field, replace

_NONE_GIVEN: Any = object()  # there is no default
_MANY = 40  # instances; as many cost as much time as it takes to compile an `__init__`
_set = object.__setattr__


class _Field:
    """What a class says about one of its fields."""

    __slots__ = ("default", "factory", "options", "type")

    def __init__(self, default: Any, factory: Any, **options: Any) -> None:
        self.default, self.factory = default, factory
        self.options: dict[str, Any] = options
        self.type: Any = None

    def shows(self) -> bool:
        """Say whether it is part of what `repr` says."""
        return bool(self.options.get("repr", True))

    def compares(self) -> bool:
        """Say whether two that differ in it are different."""
        return bool(self.options.get("compare", True))

    def hashes(self) -> bool:
        """Say whether it is part of the hash."""
        asked = self.options.get("hash")
        return self.compares() if asked is None else bool(asked)


class _Design:
    """The fields of a class with those of its bases, and the dataclass that has the same."""

    def __init__(self, cls: type, fields: dict[str, _Field], *, is_frozen: bool) -> None:
        self.name, self.fields, self.is_frozen = cls.__qualname__, fields, is_frozen
        self.post_init = getattr(cls, "__post_init__", None)
        self.names = tuple(n for n, each in fields.items() if not each.options.get("kw_only"))
        self._made: type | None = None
        self._instances = 0

    def fill(self, instance: Any, args: tuple[Any, ...], given: dict[str, Any]) -> bool:
        """Set the fields of an instance; False: it takes the real thing, for speed or an error."""
        self._instances += 1
        values = dict(zip(self.names, args, strict=False)) | given
        if self._instances > _MANY or len(values) < len(args) + len(given):
            return False
        known = 0
        for name, each in self.fields.items():
            if name in values:
                known += 1
                _set(instance, name, values[name])
            elif each.factory is not _NONE_GIVEN:
                _set(instance, name, each.factory())
            elif each.default is not _NONE_GIVEN:
                _set(instance, name, each.default)
            else:
                return False
        return known == len(values)

    def written(self) -> Callable[..., None]:
        """Return an `__init__` as `dataclasses` would write it."""
        names: dict[str, Any] = {"_set": _set, "_NONE": _NONE_GIVEN}
        given: dict[bool, list[str]] = {False: ["self"], True: []}
        lines = []
        for at, (name, each) in enumerate(self.fields.items()):
            names[f"_{at}"] = each.default if each.factory is _NONE_GIVEN else each.factory
            has_default = names[f"_{at}"] is not _NONE_GIVEN
            made = "_NONE" if each.factory is not _NONE_GIVEN else f"_{at}"
            is_named = bool(each.options.get("kw_only"))
            given[is_named].append(f"{name}={made}" if has_default else name)
            value = f"_{at}() if {name} is _NONE else {name}" if made == "_NONE" else name
            lines.append(
                f"_set(self, {name!r}, {value})" if self.is_frozen else f"self.{name} = {value}"
            )
        if self.post_init is not None:
            lines.append("self.__post_init__()")
        named = ["*", *given[True]] if given[True] else []
        body = "\n    ".join(lines or ["pass"])
        exec(f"def __init__({', '.join([*given[False], *named])}):\n    {body}", names)  # noqa: S102  # names of fields
        init: Callable[..., None] = names["__init__"]
        return init

    def made(self) -> type:
        """Return a dataclass of the same fields; it is made when it is first asked for."""
        if self._made is None:
            import dataclasses  # noqa: PLC0415  # slow to load

            names: dict[str, Any] = {"__doc__": "", "__annotations__": {}}
            for name, each in self.fields.items():
                names["__annotations__"][name] = each.type
                options = dict(each.options)
                if each.factory is not _NONE_GIVEN:
                    options["default_factory"] = each.factory
                elif each.default is not _NONE_GIVEN:
                    options["default"] = each.default
                names[name] = dataclasses.field(**options)
            if self.post_init is not None:
                names["__post_init__"] = self.post_init
            self._made = dataclasses.dataclass(
                frozen=self.is_frozen, repr=False, eq=False, match_args=False
            )(type(self.name, (), names))
        return self._made


class _OfDataclass:
    """An attribute by which `dataclasses` knows its classes, taken from one when asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object | None, owner: Any) -> Any:
        return getattr(owner.__plain__.made(), self.name)


if not TYPE_CHECKING:

    def field(*, default=_NONE_GIVEN, default_factory=_NONE_GIVEN, **options):  # noqa: ANN003, ANN001, ANN201
        """Say more of a field than its type; takes what `dataclasses.field` takes."""
        return _Field(default, default_factory, **options)

    def replace(record, /, **changes):  # noqa: ANN003, ANN001, ANN201
        """Return a copy in which some fields are others."""
        for name in type(record).__plain__.fields:
            if name not in changes:
                changes[name] = getattr(record, name)
        return type(record)(**changes)

    def dataclass(cls=None, /, **options):  # noqa: ANN003, ANN001, ANN201
        """Make a dataclass of a class; takes `eq`, `frozen`, `kw_only`, `repr` and `slots`."""
        return (lambda cls: _designed(cls, **options)) if cls is None else _designed(cls, **options)


def _designed(
    cls: type,
    *,
    eq: bool = True,
    frozen: bool = False,
    kw_only: bool = False,
    repr: bool = True,  # noqa: A002  # as `dataclasses` calls it
    slots: bool = False,
) -> type:
    own = _own_fields(cls, kw_only=kw_only)
    fields: dict[str, _Field] = {}
    for base in cls.__mro__[-1:0:-1]:
        if "__plain__" in vars(base):
            fields |= vars(base)["__plain__"].fields
    fields |= own
    design = _Design(cls, fields, is_frozen=frozen)
    methods: dict[str, Any] = {
        "__plain__": design,
        "__dataclass_fields__": _OfDataclass("__dataclass_fields__"),
        "__dataclass_params__": _OfDataclass("__dataclass_params__"),
        "__match_args__": design.names,
        "__init__": _init,
    }
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods["__eq__"] = _eq(_values([n for n, each in fields.items() if each.compares()]))
        hashed = [n for n, each in fields.items() if each.hashes()]
        methods["__hash__"] = _hash(_values(hashed)) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if slots and frozen:
        methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    written = vars(cls)
    # Python itself writes `__hash__ = None` into a class that has `__eq__` alone.
    added = {name: made for name, made in methods.items() if written.get(name) is None}
    if slots:
        return _slotted(cls, own, added)
    for name, made in added.items():
        setattr(cls, name, made)
    return cls


def _own_fields(cls: type, *, kw_only: bool) -> dict[str, _Field]:
    """Take the fields out of the body of a class, and leave their defaults there."""
    fields: dict[str, _Field] = {}
    for name, hint in vars(cls).get("__annotations__", {}).items():
        if _is_of_class(hint):
            continue
        given = vars(cls).get(name, _NONE_GIVEN)
        each = given if isinstance(given, _Field) else _Field(given, _NONE_GIVEN)
        each.type = hint
        if kw_only:
            each.options.setdefault("kw_only", True)
        if isinstance(given, _Field):
            if each.default is _NONE_GIVEN:
                delattr(cls, name)
            else:
                setattr(cls, name, each.default)
        fields[name] = each
    return fields


def _is_of_class(hint: Any) -> bool:
    if isinstance(hint, str):
        return hint.startswith("ClassVar")
    return hint is ClassVar or getattr(hint, "__origin__", None) is ClassVar


def _slotted(cls: type, own: dict[str, _Field], added: dict[str, Any]) -> type:
    """Return the class made anew, since slots have to be there from the beginning."""
    left_out = {*own, "__dict__", "__weakref__"}
    body = {name: value for name, value in vars(cls).items() if name not in left_out}
    inherited = {name for base in cls.__mro__[1:] for name in vars(base).get("__slots__", ())}
    body |= added
    body["__slots__"] = tuple(name for name in own if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _init(self: Any, *args: Any, **given: Any) -> None:
    """Set the fields, as long as there are few instances; then give its place to a faster one."""
    cls: Any = next(base for base in type(self).__mro__ if "__plain__" in vars(base))
    design: _Design = cls.__plain__
    if design.fill(self, args, given):
        if design.post_init is not None:
            design.post_init(self)
        return
    written: Any = design.written()
    written.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = written
    written(self, *args, **given)


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


@recursive_repr()
def _repr(self: Any) -> str:
    fields = type(self).__plain__.fields.items()
    said = ", ".join([f"{name}={getattr(self, name)!r}" for name, each in fields if each.shows()])
    return f"{self.__class__.__qualname__}({said})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:  # noqa: ARG001
    from dataclasses import FrozenInstanceError  # noqa: PLC0415  # slow to load

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:  # noqa: ARG001
    from dataclasses import FrozenInstanceError  # noqa: PLC0415  # slow to load

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, name) for name in type(self).__plain__.fields]


def _setstate(self: Any, state: list[Any]) -> None:
    for name, value in zip(type(self).__plain__.fields, state, strict=True):
        _set(self, name, value)
