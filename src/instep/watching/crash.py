"""What the end of a job tells: a gradient was asked for that is not there."""

from __future__ import annotations

import linecache
import re
from typing import TYPE_CHECKING, Any

from instep.trace import GradRead
from instep.trace.place import place_of
from instep.watching.locals_of import locals_of

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from instep.trace import Place
    from instep.watching.book import Book
    from instep.watching.recorder import Recorder

_GRAD = re.compile(r"\.grad\b")
_NAMED = re.compile(r"(?<![\w.])(\w+)\.grad\b")
_ERRORS = (AttributeError, TypeError)


def tell(error: BaseException, recorder: Recorder) -> None:
    """Tell of a look at `.grad` that ended the job, if that is what did."""
    if not isinstance(error, _ERRORS) or "NoneType" not in str(error):
        return
    frame = _frame(error.__traceback__, recorder.book.skip)
    place = None if frame is None else place_of(frame)
    if frame is None or place is None or not _GRAD.search(_text(place)):
        return
    recorder.noticed()
    # Those that were never used have no gradients either, and nothing to do with it.
    empty = tuple(name for name in recorder.book.empty() if name in recorder.facts)
    parameter = None if empty else _parameter(frame, _text(place), recorder.book)
    recorder.add(
        ("grad-read", place),
        lambda: GradRead(empty, parameter=parameter, guarded=False, place=place),
    )


def _parameter(frame: FrameType, text: str, book: Book) -> str | None:
    """Return the parameter whose gradient a line asks for by a name, where that is None."""
    names = locals_of(frame)
    for name in dict.fromkeys(_NAMED.findall(text)):
        value: Any = names.get(name)
        held = book.parameters.get(id(value))
        if held is not None and held.weak() is value and value.grad is None:
            return held.label
    return None


def _frame(trace: TracebackType | None, skip: tuple[str, ...]) -> FrameType | None:
    """Return the user's frame that an error comes from."""
    found = None
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(skip):
            found = trace
        trace = trace.tb_next
    return None if found is None else found.tb_frame


def _text(place: Place) -> str:
    return linecache.getline(place.path, place.line)
