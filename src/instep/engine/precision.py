"""Autocast around the user's loop body, with no line in it.

The region is entered when a micro-batch is handed out, left when its body has ended, and paused for
backward and for the close. Pausing nests inside whatever autocast blocks the body opened itself, so
theirs stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from instep.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

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
        self._pauses = [torch.autocast(kind, dtype=dtype, enabled=False) for kind in kinds]
        self.is_active = bool(kinds)
        self._is_entered = False

    def enter(self) -> None:
        """Begin the region, if this precision has one and it is not begun."""
        if self._regions and not self._is_entered:
            for region in self._regions:
                region.__enter__()
            self._is_entered = True

    def leave(self) -> None:
        """End the region, if it is begun."""
        if self._is_entered:
            for region in reversed(self._regions):
                region.__exit__(None, None, None)
            self._is_entered = False

    def __enter__(self) -> None:
        for pause in self._pauses:
            pause.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for pause in reversed(self._pauses):
            pause.__exit__(kind, error, tb)
