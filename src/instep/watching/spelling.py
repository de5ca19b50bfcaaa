"""What the user calls an object: the name it has where it is used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from instep.watching.locals_of import locals_of
from instep.watching.wrappers import core

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

_OWN = __file__[: -len("watching/spelling.py")]
_MOST_FRAMES = 24
_MOST_NAMES = 400
_OWNERS = ("self", "cls")
"""Names of what has attributes; a method's first argument is one whatever it is called."""


def spelled(thing: object, skip: tuple[str, ...]) -> str | None:
    """Return the name of a thing in the nearest frame that has one, as its source would write it.

    Frames of files that begin with one of `skip` are passed over. Nothing is evaluated: properties
    and `__getattr__` of the user's objects are left alone.

    >>> optimizer = object()
    >>> spelled(optimizer, ())
    'optimizer'
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # `inspect` would read source files
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if not file.startswith(_OWN) and not file.startswith(skip):
            own = (*_OWNERS, *frame.f_code.co_varnames[: frame.f_code.co_argcount][:1])
            found = _in(locals_of(frame), thing, own) or _in(frame.f_globals, thing)
            if found is not None:
                return found
        frame = frame.f_back
    return None


def _in(names: Mapping[str, Any], thing: object, owners: tuple[str, ...] = _OWNERS) -> str | None:
    for name, value in list(names.items())[:_MOST_NAMES]:
        if not name.startswith("_") and (value is thing or core(value) is thing):
            return name
    for name in owners:
        inner = getattr(names.get(name), "__dict__", None)
        if isinstance(inner, dict):
            for attribute, value in list(inner.items())[:_MOST_NAMES]:
                if value is thing or core(value) is thing:
                    return f"{name}.{attribute}"
            # A module keeps its parts in a dictionary of their own.
            parts = inner.get("_modules")
            if isinstance(parts, dict):
                for attribute, value in parts.items():
                    if value is thing:
                        return f"{name}.{attribute}"
    return None
