"""Autocast around the user's loop body, with no line in it.

The region is entered when a micro-batch is handed out and left before backward, before the close
and when the window is abandoned. It is never open during an optimizer step: autocast caches the
casts of weights, and a step inside the region would leave the old weights in that cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from instep.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """The autocast region of one stepper: entered and left, never nested in itself."""

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
        kinds = sorted(set(devices)) or ["cpu"]
        self._regions = [torch.autocast(kind, dtype=dtype) for kind in kinds] if dtype else []
        self.active = bool(self._regions)
        self._entered = False

    def enter(self) -> None:
        """Begin the region, if this precision has one and it is not begun."""
        if self.active and not self._entered:
            for region in self._regions:
                region.__enter__()
            self._entered = True

    def leave(self) -> bool:
        """End the region; return whether it was begun, so that a caller can begin it again."""
        if not self._entered:
            return False
        for region in reversed(self._regions):
            region.__exit__(None, None, None)
        self._entered = False
        return True
