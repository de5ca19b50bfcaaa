"""What the end of a job tells: a gradient was asked for that is not there."""

from __future__ import annotations

import linecache
import re
from typing import TYPE_CHECKING

from instep.trace import GradRead
from instep.trace.place import place_of

if TYPE_CHECKING:
    from types import TracebackType

    from instep.trace import Place
    from instep.watching.recorder import Recorder

_GRAD = re.compile(r"\.grad\b")
_ERRORS = (AttributeError, TypeError)


def tell(error: BaseException, recorder: Recorder) -> None:
    """Tell of a look at `.grad` that ended the job, if that is what did."""
    if not isinstance(error, _ERRORS) or "NoneType" not in str(error):
        return
    place = _place(error.__traceback__, recorder.book.skip)
    if place is None or not _GRAD.search(_text(place)):
        return
    recorder.noticed()
    # Those that were never used have no gradients either, and nothing to do with it.
    empty = tuple(name for name in recorder.book.empty() if name in recorder.facts)
    recorder.add(("grad-read", place), lambda: GradRead(empty, guarded=False, place=place))


def _place(trace: TracebackType | None, skip: tuple[str, ...]) -> Place | None:
    """Return the user's line that an error comes from."""
    found = None
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(skip):
            found = trace
        trace = trace.tb_next
    return None if found is None else place_of(found.tb_frame)


def _text(place: Place) -> str:
    return linecache.getline(place.path, place.line)
