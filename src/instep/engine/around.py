"""What is around loaders and passes on every batch: `tqdm`, `enumerate`, `zip` and `map`.

What is inside of them is looked at, and nothing of it is drawn or changed. A generator, `islice` or
a class of a user's may end when it likes, and is not looked into.
"""

from __future__ import annotations

import inspect
import itertools
import operator
from types import GeneratorType
from typing import Any

from torch.utils.data import DataLoader

from instep.engine.dealt import Pass

_COUNTED: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))))
DEPTH = 8
"""Things inside of each other, at most."""


class Rest:
    """An iterator that knows how much is left of it."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def has_ended(self) -> bool:
        """Whether it may be the one that has ended."""
        return operator.length_hint(self._items) == 0


def inside_of(loader: Any, depth: int = DEPTH) -> list[Any] | None:
    """Return all that is drawn from for each batch; None if something is not known to go on.

    Loaders, their iterators, and `Rest` for what is no loader.

    >>> [type(each).__name__ for each in inside_of(zip([1, 2], itertools.count()))]
    ['Rest']
    >>> inside_of(itertools.islice([1, 2], 1)) is None
    True
    """
    if isinstance(loader, DataLoader | Pass) or _is_begun(loader):
        return [loader]
    if type(loader) in _COUNTED:
        return [Rest(loader)]
    if type(loader) is itertools.count:
        return []
    parts = _parts_of(loader) if depth else ()
    found = [inside_of(part, depth - 1) for part in parts]
    known = [each for each in found if each is not None]
    return [one for each in known for one in each] if found and len(known) == len(found) else None


def _parts_of(loader: Any) -> tuple[Any, ...]:
    """Return what gives something for each thing that this one gives; none if it is not known."""
    kind = type(loader)
    if kind in (zip, enumerate, map):
        parts: tuple[Any, ...] = loader.__reduce__()[1]
        if kind is map:
            return parts[1:]
        # Behind what it goes over, `enumerate` has where to count from.
        return parts[:1] if kind is enumerate else parts
    bar = _bar_of(loader) if isinstance(loader, GeneratorType) else loader
    return (bar.iterable,) if _is_bar(bar) else ()


def _is_begun(loader: Any) -> bool:
    # By name: torch has no public one for the iterators of a loader.
    kind = type(loader)
    names = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
    return kind.__module__ == "torch.utils.data.dataloader" and kind.__name__ in names


def _is_bar(loader: Any) -> bool:
    """Whether it is a progress bar of tqdm's, that gives what is in it."""
    own = getattr(type(loader), "__iter__", None)
    is_its = str(getattr(own, "__module__", "")).split(".")[0] == "tqdm"
    return is_its and getattr(loader, "iterable", None) is not None


def _bar_of(generator: GeneratorType[Any, Any, Any]) -> Any:
    """Return the progress bar that is iterated by this, if it is one and has not begun."""
    if inspect.getgeneratorstate(generator) != inspect.GEN_CREATED:
        return None
    frame = generator.gi_frame
    bar = None if frame is None else frame.f_locals.get("self")
    is_its = generator.gi_code is getattr(getattr(type(bar), "__iter__", None), "__code__", None)
    return bar if is_its else None
