"""Autocast around the user's loop body, with no line in it.

The region is entered when a micro-batch is handed out, left when its body has ended, and paused for
backward and for the close. Pausing nests inside whatever autocast blocks the body opened itself, so
theirs stay as they are.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

from instep.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType


class _Entered(threading.local):
    """The regions entered in this thread, in order."""

    def __init__(self) -> None:
        self.stack: list[Precision] = []


_ENTERED = _Entered()
DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """The autocast region of one stepper; as a context manager, its pause."""

    def __init__(self, name: str, devices: Iterable[str]) -> None:
        if name not in DTYPES:
            raise SetupError(
                f"precision is {name!r}.",
                why=f"it is one of {', '.join(map(repr, DTYPES))}.",
                fix='pass precision="bf16", for example.',
                more="precision",
            )
        self.name = name
        dtype = DTYPES[name]
        kinds = (sorted(set(devices)) or ["cpu"]) if dtype else []
        self._regions = [torch.autocast(kind, dtype=dtype) for kind in kinds]
        self._kinds = kinds
        self._paused: list[str] = []
        self.is_active = bool(kinds)
        self._is_entered = False

    def enter(self) -> None:
        """Begin the region, if this precision has one and it is not begun."""
        if self._regions and not self._is_entered:
            self._is_entered = True
            if self in _ENTERED.stack:
                # Left while a later one was open, so it is still on.
                return
            for region in self._regions:
                region.__enter__()
            _ENTERED.stack.append(self)

    def leave(self) -> None:
        """End the region, if it is begun.

        Regions restore what they found, so they end last in, first out. One that is left while a
        later one is open (two steppers whose loops are interleaved) ends with that one.
        """
        if self._is_entered:
            self._is_entered = False
            stack = _ENTERED.stack
            while stack and not stack[-1]._is_entered:  # noqa: SLF001 -- of our own kind
                for region in reversed(stack.pop()._regions):  # noqa: SLF001
                    region.__exit__(None, None, None)

    def __enter__(self) -> None:
        self._paused = [kind for kind in self._kinds if torch.is_autocast_enabled(kind)]
        for kind in self._paused:
            torch.set_autocast_enabled(kind, False)  # noqa: FBT003 -- by position only

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for device in self._paused:
            torch.set_autocast_enabled(device, True)  # noqa: FBT003
