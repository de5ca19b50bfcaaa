"""How far down values are followed that hold each other.

Python has a limit for calls inside calls; a compiled build has none, and would end with the stack.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_R = TypeVar("_R")

MOST = 300
"""Values inside values: what is written by hand is nowhere near."""
MOST_VALUES = 20_000
"""Values that are looked at for one: forty pairs of pairs hold one value 2 ** 40 times."""


def goes_down(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Mark a function that calls itself for what is inside a value, perhaps through others.

    >>> @goes_down
    ... def depth(value: list) -> int:
    ...     return 1 + max(map(depth, value), default=0)
    >>> depth([[], [[]]])
    3
    >>> endless = []
    >>> endless.append(endless)
    >>> depth(endless)
    Traceback (most recent call last):
    RecursionError: values are nested too deeply
    """
    level = looked_at = 0

    @wraps(function)
    def counted(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        nonlocal level, looked_at
        looked_at = looked_at + 1 if level else 0
        if level >= MOST or looked_at > MOST_VALUES:
            message = "values are nested too deeply"
            raise RecursionError(message)
        level += 1
        try:
            return function(*args, **kwargs)
        finally:
            level -= 1

    return counted
