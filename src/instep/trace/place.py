"""Where in the user's source an event was caused."""

import sys
from itertools import islice
from types import CodeType, FrameType

from instep.trace.plain import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A span of the user's source.

    Lines count from 1. Columns count from 0 in UTF-8 bytes, as `ast` and code objects both count
    them, so that a place seen in source and the same place seen at run time are equal; a report
    turns them into what its format wants.

    >>> print(Place("train.py", 12, column=4, function="main"))
    train.py:12:5
    """

    path: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    function: str | None = None  # qualified name of the enclosing function; None: not known
    snippet: str | None = None  # the source text of the span, where somebody has read it already
    cell: int | None = None  # code cell of a notebook, from 1; `line` counts inside it

    def __hash__(self) -> int:
        # Asked for at every event of a running job: three fields tell nearly all places apart.
        return hash((self.path, self.line, self.column))

    def __str__(self) -> str:
        where = self.path if self.cell is None else f"{self.path}[{self.cell}]"
        column = "" if self.column is None else f":{self.column + 1}"  # editors count from 1
        return f"{where}:{self.line}{column}"


class _Site:
    """What is known about one code object: where it comes from, and the places in it."""

    __slots__ = ("code", "outside", "path", "places")

    def __init__(self, code: CodeType) -> None:
        self.code = code  # kept alive, because the cache is keyed by its id
        self.path = code.co_filename
        self.places: dict[int, Place] = {}
        self.outside: tuple[str, ...] | None = None  # the latest `skip` that this was not found in

    def is_outside(self, skip: tuple[str, ...]) -> bool:
        """Say whether this is neither instep's nor under a path to be passed over."""
        if self.path.startswith(_PACKAGE) or self.path.startswith(skip):
            return False
        self.outside = skip
        return True

    def add(self, frame: FrameType) -> Place:
        at = frame.f_lasti // 2  # one position per two-byte code unit
        spans = islice(self.code.co_positions(), max(at, 0), None)
        _, end_line, column, end_column = next(spans, (None, None, None, None))
        place = Place(
            path=self.path,
            line=frame.f_lineno,
            column=column,
            end_line=end_line,
            end_column=end_column,
            function=self.code.co_qualname,
        )
        self.places[frame.f_lasti] = place
        return place


# Keyed by id and not by the code object: hashing a code object reads all of its bytecode.
_SITES: dict[int, _Site] = {}
_MOST_SITES = 4096  # code made by exec() in a long job must not grow the cache without end
_PASSED: dict[tuple[str, ...], set[int]] = {}
"""By `skip`: ids of code that is passed over. All of it is in `_SITES`, and so alive."""


def _site(code: CodeType) -> _Site:
    if len(_SITES) >= _MOST_SITES:
        _SITES.clear()
        _PASSED.clear()
    site = _SITES[id(code)] = _Site(code)
    return site


def here(
    skip: tuple[str, ...] = (), inside: int = 0, *, start: FrameType | None = None
) -> Place | None:
    """Return the place of the nearest caller outside the instep package; None: there is none.

    `skip` holds path prefixes whose frames are passed over as well, such as torch's own folder
    when a hook is called from inside it. `inside` is how many callers are known to be of instep:
    frames that nobody asks for need not be made. Whoever has a frame at hand in which to `start`
    need not count. The same call site gives the same `Place` object.

    >>> here().function
    '<module>'
    """
    # Several times in every update of a job that is watched: as little as will do.
    frame: FrameType | None = start
    if frame is None:
        frame = sys._getframe(1 + inside)  # noqa: SLF001  # `inspect` would read source files
    passed = _PASSED.get(skip) or _PASSED.setdefault(skip, set())
    while frame is not None:
        key = id(frame.f_code)
        if key not in passed:
            site = _SITES.get(key) or _site(frame.f_code)
            if site.outside is skip or site.is_outside(skip):
                return site.places.get(frame.f_lasti) or site.add(frame)
            # Looked up anew: to take a site may have begun both tables anew.
            _PASSED.setdefault(skip, set()).add(key)
        frame = frame.f_back
    return None


def place_of(frame: FrameType) -> Place:
    """Return the place that a frame has come to."""
    site = _SITES.get(id(frame.f_code)) or _site(frame.f_code)
    return site.places.get(frame.f_lasti) or site.add(frame)


class Nearest:
    """`here` for who asks all the time: where it was found at once, it is known the next time.

    >>> nearest, frame = Nearest(), sys._getframe()
    >>> nearest(frame) is nearest(frame)
    True
    """

    __slots__ = ("_at", "_code", "_place", "_skip")

    def __init__(self, skip: tuple[str, ...] = ()) -> None:
        self._skip = skip
        self._place: Place | None = None
        self._code: CodeType | None = None
        self._at = 0

    def __call__(self, frame: FrameType | None) -> Place | None:
        """Return the place of a frame, or of the nearest of its callers that is not skipped."""
        if frame is None:
            return None
        if frame.f_lasti == self._at and frame.f_code is self._code:
            return self._place
        place = here(self._skip, start=frame)
        if place is place_of(frame):
            self._place, self._code, self._at = place, frame.f_code, frame.f_lasti
        return place


# Taken from this very code object, so that it is spelled the way its neighbours' are. Two names
# up: .../instep/trace/place.py lies in .../instep/.
_PACKAGE = here.__code__.co_filename[: -len("trace/place.py")]
