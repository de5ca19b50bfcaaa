"""Numbers of a job handed to a writer of the user's, such as TensorBoard's `SummaryWriter`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_ODD = re.compile(r"[^\w./-]")


class Scalars:
    """Writes every point of a job's lines as it comes; a writer that fails is let go.

    >>> class Writer:
    ...     def add_scalar(self, tag, value, step):
    ...         print(tag, value, step)
    >>> Scalars(Writer(), print)("loss", "optimizer", 3, 0.5)
    instep/loss/optimizer 0.5 3
    """

    def __init__(self, writer: Any, tell: Callable[[str], object]) -> None:
        self._add = writer.add_scalar
        self._tell = tell
        self._is_on = True

    def __call__(self, name: str, optimizer: str, update: int, value: float) -> None:
        """Write one point."""
        if not self._is_on:
            return
        try:
            self._add(f"instep/{name}/{_ODD.sub('_', optimizer)}", value, update)
        except Exception as error:  # noqa: BLE001  # whatever it is, it must not stop the job
            self._is_on = False
            self._tell(
                f"instep: the writer failed ({type(error).__name__}: {error}); "
                "no more scalars are written to it. The job is not affected.\n"
            )
