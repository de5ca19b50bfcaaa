"""Optimizers that `instep.Stepper` drives: it is exact by itself, and has nothing to be judged."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_ENGINE = __file__[: -len("watching/driven.py")] + "engine/"
_CLOSE = "instep.engine.close"
_MOST_FRAMES = 10
"""Between a step and a hook on it: torch's own, those of who wraps the step, and ours."""


def is_driven() -> bool:
    """Say whether the engine has called what is running now.

    >>> is_driven()
    False
    """
    if _CLOSE not in sys.modules:  # nobody can have called it
        return False
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # `inspect` would read source files
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_filename.startswith(_ENGINE):
            return True
        frame = frame.f_back
    return False
