"""What a loss function is known by: lambdas and methods are made anew in every step."""

from __future__ import annotations

import functools
import itertools
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


def name_of(function: Callable[[Any], Any], inside: list[object]) -> Hashable:
    """Tell a function that is written anew in each step (a lambda) from another one.

    `inside` gets the objects that it is known by.
    """
    if isinstance(function, types.MethodType):
        inside.append(function.__self__)
        return (name_of(function.__func__, inside), id(function.__self__))
    if isinstance(function, functools.partial):
        given = [*function.args, *itertools.chain(*sorted(function.keywords.items()))]
        inside.extend(given)
        return (name_of(function.func, inside), *map(_value_of, given))
    if not isinstance(function, types.FunctionType):
        inside.append(function)
        return id(function)
    cells = [_content(cell) for cell in function.__closure__ or ()]
    defaults = (function.__kwdefaults__ or {}).values()
    found = [*cells, *(function.__defaults__ or ()), *defaults]
    inside.extend(found)
    return (function.__code__, *map(_value_of, found))


def _value_of(value: object) -> Hashable:
    """Return a plain value itself, and the identity of anything else."""
    if value is None or isinstance(value, str | bytes | int | float | bool):
        return (type(value), value)
    return id(value)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet: a name that is given later
        return None
