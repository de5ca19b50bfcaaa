"""A bar on long runs, for somebody who is waiting at a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE = 1.0  # seconds before it appears
_PACE = 0.1
_WIDTH = 30


class Progress:
    """Shows how much is done; nothing at all where nobody would see it.

    >>> import io
    >>> stream = io.StringIO()
    >>> with Progress(stream, is_on=False) as progress:
    ...     progress.start(2)
    ...     progress.advance()
    >>> stream.getvalue()
    ''
    """

    def __init__(
        self, stream: TextIO, *, is_on: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._is_on, self._clock = stream, is_on, clock
        self._total = self._done = 0
        self._next = 0.0
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_shown = False

    def start(self, total: int) -> None:
        """Say how much there is to do."""
        self._total, self._done = total, 0
        self._next = self._clock() + _PATIENCE

    def advance(self, amount: int = 1) -> None:
        """Say that so much more is done."""
        self._done += amount
        if not self._is_on or self._clock() < self._next:
            return
        self._next = self._clock() + _PACE
        share = min(self._done / max(self._total, 1), 1.0)
        bar = "#" * int(share * _WIDTH)
        self._stream.write(f"\rchecking [{bar:<{_WIDTH}}] {share:4.0%}\x1b[K")
        self._stream.flush()
        self._is_shown = True
