"""Which thread is watched: one, the first that goes backward.

A backward holds no lock of Python's. While it runs in one thread, a gradient that another thread
looks at may be replaced and gone, and the process with it. So nobody looks at what is trained in
another thread, and what a backward reads is not changed meanwhile.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, TypeVar

from instep.watching.warned import passed_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")
_Foreign: type = getattr(threading, "_DummyThread", type(None))
_QUIET = 3
"""Backwards of another thread, one after the other, after which one that has tried out a backward
and made no update gives way to it.
"""


class Tally:
    """A number to which several threads add: each has its own, since `+=` may lose some."""

    def __init__(self) -> None:
        self._by_thread: dict[int, int] = {}

    def add(self) -> None:
        """Add one."""
        here = get_ident()
        self._by_thread[here] = self._by_thread.get(here, 0) + 1

    def total(self) -> int:
        """Return what all have added."""
        return sum(self._by_thread.copy().values())


class _Token:
    """Something that a thread has until it ends."""


class Threads:
    """The thread that is watched, and those that are not."""

    def __init__(self) -> None:
        self.home = 0
        """The one that is watched; 0: none has gone backward yet, and all may be heard of."""
        self.strangers: set[int] = set()
        """Those that are not watched."""
        self.on_stranger: Callable[[int], None] = lambda _: None
        """Called with each of them when it is met, before it does anything."""
        self.goes_back: Callable[[], bool] = lambda: False
        """Whether the thread that is watched is in a backward."""
        self.backwards: Callable[[], int | None] = lambda: None
        """How often it has gone backward without an update; None: it has made one."""
        self._gate = threading.RLock()  # what ends in here may train
        self._here = threading.local()
        self._token: weakref.ref[_Token] | None = None
        """Of the thread that is watched: it dies with it, whoever has started it."""
        self._going: set[int] = set()  # others that go backward now
        self._heard: int | None = None  # of `backwards`, when it was asked last
        self._quiet = 0

    def hears(self) -> bool:
        """Say whether what this thread does is heard of.

        It is if none is watched, or the one that was has ended: the next backward tells which one
        will be. Autograd's own threads, such as that of a device, belong to who goes backward.
        """
        here = get_ident()
        if here == self.home or not self._is_taken(here):
            return True
        if self.goes_back() and _is_foreign(here):
            return True
        self._meet(here)
        return False

    def claims(self) -> bool:
        """Have a thread that is about to go backward be watched, if no other one is; say whether it
        is.
        """
        here = get_ident()
        with self._gate:
            if not self._is_taken(here) or self._gives_way():
                self.strangers.discard(here)
                self._settle(here)
                return True
        self._meet(here)
        return False

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep other threads from going backward in here; say whether none of them does so already.

        They wait for it, and nobody ever waits for them.
        """
        with self._gate:
            yield not self._going and not self._is_taken(get_ident())

    @passed_over
    def unseen(self, backward: Callable[[], _T]) -> _T:
        """Go backward where nothing is seen: in another thread, when it may."""
        here = get_ident()
        if here == self.home or here in self._going:  # inside of a backward
            return backward()
        self.hears()  # or else it is a stranger from now on
        with self._gate:
            self._going.add(here)
        try:
            return backward()
        finally:
            self._going.discard(here)

    def _settle(self, here: int) -> None:
        def end(token: weakref.ref[_Token]) -> None:
            if self._token is token:
                self.home = 0  # before another thread gets its number

        token = _Token()
        self._token = weakref.ref(token, end)
        self._here.token = token  # the one before may die by it
        self.home = here

    def _is_taken(self, here: int) -> bool:
        """Say whether another thread is watched."""
        return self.home not in {0, here}

    def _gives_way(self) -> bool:
        backwards = self.backwards()
        if backwards is None or backwards != self._heard or self.goes_back():
            self._heard, self._quiet = backwards, 0
        self._quiet += 1
        return backwards is not None and self._quiet > _QUIET and not self.goes_back()

    def _meet(self, here: int) -> None:
        if here not in self.strangers:
            self.strangers.add(here)
            self.on_stranger(here)


def _is_foreign(ident: int) -> bool:
    """Say whether Python did not start a thread."""
    found = next((each for each in threading.enumerate() if each.ident == ident), None)
    return found is None or type(found) is _Foreign
