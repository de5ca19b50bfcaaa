"""Everything instep raises, and the one form it takes: what, why, fix, more.

    InstepError
    ├── SetupError      (ValueError)    a Stepper that could not be right, refused before it exists
    ├── LossError       (ValueError)    a loss that cannot be backpropagated
    ├── ItemsError      (ValueError)    a count of items that is no count
    ├── WindowError     (RuntimeError)  a call that does not fit the state of its window
    ├── StateError      (ValueError)    a state_dict that belongs to something else
    ├── CheckpointError (OSError)       a checkpoint that cannot be written, or is not whole
    ├── SplitError      (ValueError)    a batch that cannot be cut as asked
    ├── CallError       (TypeError)     an argument that has another name here, or is missing
    ├── CheckError      (ValueError)    a path, a setting or a baseline that cannot be used
    └── WatchError      (RuntimeError)  a job that cannot be watched, or was not right
    InstepWarning       (UserWarning)   said once: training goes on, but something is off

An error is raised before anything has changed, unless its text says otherwise.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_HERE = os.path.dirname(__file__) + os.sep  # noqa: PTH120 -- compared with the names that frames have


class InstepError(Exception):
    """The root of the tree; `except InstepError` catches all that instep raises itself.

    >>> raise WindowError("window is closed.", why="w.", fix="f.", more="window-states")
    Traceback (most recent call last):
    instep.errors.WindowError: window is closed.
      why:  w.
      fix:  f.
      more: instep explain window-states
    """

    def __init__(self, what: str, *, why: str, fix: str, more: str) -> None:
        super().__init__(four_lines(what, why=why, fix=fix, more=more))
        self.what, self.why, self.fix, self.more = what, why, fix, more

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and errors
        # travel between processes in data loaders and launchers.
        return (_rebuild, (type(self), self.what, self.why, self.fix, self.more))


def four_lines(what: str, *, why: str, fix: str, more: str) -> str:
    """Lay out a message the way every message of this project is laid out."""
    return f"{what}\n  why:  {why}\n  fix:  {fix}\n  more: instep explain {more}"


def warn(text: str) -> None:
    """Warn, at the line of the user's that led to it: not at one of instep's or torch's."""
    torch = sys.modules.get("torch")
    passed = [_HERE, contextlib.__file__]
    if torch is not None and torch.__file__:
        passed.append(os.path.dirname(torch.__file__) + os.sep)  # noqa: PTH120 -- as above
    level = 2
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # `inspect` would read source files
    while frame is not None and frame.f_code.co_filename.startswith(tuple(passed)):
        # What looks like Python's own imports is left out of the count by `warnings` itself.
        name = frame.f_code.co_filename
        level += not ("importlib" in name and "_bootstrap" in name)
        frame = frame.f_back
    warnings.warn(text, InstepWarning, stacklevel=2 if frame is None else level)


def _rebuild(cls: type[InstepError], what: str, why: str, fix: str, more: str) -> InstepError:
    return cls(what, why=why, fix=fix, more=more)


class SetupError(InstepError, ValueError):
    """The parts given to a Stepper do not fit together."""


class LossError(InstepError, ValueError):
    """A loss is not a scalar, or has no graph behind it."""


class ItemsError(InstepError, ValueError):
    """A number of items is negative, not finite, not a scalar, or missing."""


class WindowError(InstepError, RuntimeError):
    """A call came at a time when its window does not allow it."""


class StateError(InstepError, ValueError):
    """A saved state does not fit this stepper."""


class CheckpointError(InstepError, OSError):
    """A checkpoint could not be written; or it is missing, damaged, or no checkpoint at all."""


class SplitError(InstepError, ValueError):
    """A batch cannot be cut the way that was asked for."""


class CallError(InstepError, TypeError):
    """A call has an argument by the name that it has elsewhere, or lacks one."""


class CheckError(InstepError, ValueError):
    """The checker cannot run as it was asked to: a path, a setting or a baseline is wrong."""


class WatchError(InstepError, RuntimeError):
    """A job cannot be watched as asked; or, with `strict`, it was watched and is not right."""


class InstepWarning(UserWarning):
    """Training goes on, but not as it was meant; each is said once per stepper."""


def said_of(error: BaseException) -> str:
    """Return the type of an error and the first line of what it says.

    >>> said_of(OSError("disk")), said_of(KeyboardInterrupt())
    ('OSError: disk', 'KeyboardInterrupt')
    """
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
