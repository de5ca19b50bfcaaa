"""A rank whose update failed when the others had gone on to make theirs.

Until the gradients are added up an error on one rank stops the window on all of them. After that
nobody can be stopped any more: weights differ then, or what an optimizer remembers, which no weight
shows. So this rank takes part in nothing further until it has loaded a checkpoint.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NoReturn

from instep.errors import WindowError, said_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class Torn:
    """Whether this rank is one, and why."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.is_told = False
        """Whether what it has said already is for the round that the others come to next."""

    def note(self, name: str, error: BaseException) -> None:
        """Note the error that ended the update of an optimizer, `name`."""
        self.is_told = False
        self.reason = f"{said_of(error).rstrip('.')} (in the update of {name!r})"

    def refuse(self) -> NoReturn:
        """Raise, instead of taking part in what the others do next: they have been told."""
        self.is_told = False
        raise WindowError(
            "this rank has not made an update that the others have.",
            why=f"{self.reason}. Its weights, or what its optimizer remembers, are no longer those "
            "of the others, and every update after it would be wrong.",
            fix="load a checkpoint on all ranks (stepper.load), or start again from one.",
            more="ranks",
        )

    @contextlib.contextmanager
    def mended(self) -> Iterator[None]:
        """Surround what puts all ranks back to one state."""
        torn = self.reason, self.is_told
        self.reason = None
        try:
            yield
        except BaseException:
            self.reason, self.is_told = torn
            raise
