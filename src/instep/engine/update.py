"""What a closed window leaves behind: an `Update`, plain numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from instep.engine.arithmetic import TermTotal

Skipped = Literal["empty", "non-finite"]


@dataclass(frozen=True, slots=True)
class Update:
    """The result of one window of one optimizer.

    `skipped` is None if the parameters were updated, else the reason why they were not.
    """

    optimizer: str
    """The name its optimizer was given; "optimizer" if there is only one."""
    terms: Mapping[str, TermTotal]
    """Loss and items of each named term of the loss; one term called "loss" if none was named."""
    grad_norm: float
    """Norm of the window's gradient: normalised, unscaled, before clipping."""
    clip_factor: float
    """What clipping by norm multiplied the gradient by; 1.0 if it did nothing."""
    micro_batches: int
    """Micro-batches the window was made of."""
    skipped: Skipped | None
    """None, "empty" (no items) or "non-finite" (a gradient was inf or NaN)."""

    @property
    def loss(self) -> float:
        """The loss of the whole window, weights included; NaN if it had no items."""
        losses = [term.weighted for term in self.terms.values() if term.items > 0]
        return sum(losses) if losses else math.nan

    @property
    def losses(self) -> dict[str, float]:
        """The loss of each term over the whole window, without its weight."""
        return {name: term.loss for name, term in self.terms.items()}

    @property
    def items(self) -> float:
        """Items the loss is a mean of; of a loss with several terms, their sum."""
        return math.fsum(term.items for term in self.terms.values())
