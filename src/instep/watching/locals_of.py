"""The names of a frame, read without keeping anything alive."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

_OF_A_FUNCTION = 0x1
"""`inspect.CO_OPTIMIZED`: the names of such code are no dictionary."""
_ALONE = 3
"""References to what a frame returns, if nobody but the frame and this module has it."""


def locals_of(frame: FrameType) -> Mapping[str, Any]:
    """Return the local names of a frame, without a trace of that in the frame.

    Before Python 3.13 the frame of a function keeps the dictionary that it has returned, and with
    it what was in it: a batch and the graph of a loss would live until the function ends.

    >>> def user():
    ...     batch = [1, 2]
    ...     return dict(locals_of(sys._getframe()))
    >>> user()
    {'batch': [1, 2]}
    """
    names = frame.f_locals
    is_copied = frame.f_code.co_flags & _OF_A_FUNCTION and type(names) is dict
    if not is_copied:
        return names  # the names themselves, of a module or a class
    found = dict(names)
    if sys.getrefcount(names) <= _ALONE:  # what a call of `locals()` has returned stays as it is
        code = frame.f_code
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            names.pop(name, None)  # others were put there by `exec`, and live nowhere else
    return found
