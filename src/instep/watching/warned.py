"""Warnings of torch's name the line of the user's, whatever of ours is called in between."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

_PASSED_OVER = " (for warnings, as if in importlib._bootstrap)"
_F = TypeVar("_F", bound="Callable[..., Any]")


def passed_over(function: _F) -> _F:
    """Have warnings count without a function of ours that stands between torch and its caller.

    torch warns at the line of whoever has called it, so many frames above its own. Python leaves
    out of that count what has these two words in the name of its file, as imports have, and knows
    no other way.
    """
    inner: Any = function
    inner.__code__ = _renamed(inner.__code__)
    return function


@functools.cache
def _renamed(code: CodeType) -> CodeType:
    if code.co_filename.endswith(_PASSED_OVER):
        return code
    return code.replace(co_filename=code.co_filename + _PASSED_OVER)
